"""`tuner db serve`, `backup` and `restore` as a user types them; PgBouncer in front of a server."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import psycopg
import pytest
import sqlalchemy as sa

from tests.e2e.study_folder import Running, StudyFolder, wait_until
from tests.servers import Daemon, Postgresql
from tuner.errors import LaunchError
from tuner.store.connection.database import open_database
from tuner.store.connection.engine import open_engine
from tuner.store.server.programs import server_programs

pytestmark = pytest.mark.slow

#: For superusers, by default; not counted as left.
_RESERVED = 3
_TRIALS = "SELECT count(*) FROM trials WHERE state = 'COMPLETE'"


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder that the user `postgres` can reach, should root run the tests."""
    path = Path(tempfile.mkdtemp(prefix="tuner-serve-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StudyFolder]:
    """Where the commands are typed."""
    _needs_postgresql()
    folder = StudyFolder(path=tmp_path_factory.mktemp("home"))
    folder.write("forecast.py", "def train(trial):\n    return trial.params['x']\n")
    yield folder
    folder.end_all()


@contextmanager
def served(
    home: StudyFolder, place: Path, *words: str, port: int | None = None
) -> Iterator[tuple[Running, str]]:
    """A server at work, and its line for `storage`."""
    port = port or free_port()
    server = home.start_tuner("db", "serve", "--folder", f"{place}/db", f"--port={port}", *words)
    try:
        wait_until(lambda: "storage: " in server.out or server.process.poll() is not None, "serves")
        line = re.search(r"^storage: (\S+)$", server.out, re.MULTILINE)
        assert line, server.out + server.wait().err
        yield server, line[1]
    finally:
        server.end()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def parts_of(line: str) -> dict[str, str]:
    """What `psycopg.connect` takes, from a line with the password's file."""
    file = re.search(r"\$\{file:([^}]*)\}", line)
    assert file
    password = Path(file[1]).read_text().strip()
    url = sa.make_url(line.replace(file[0], password))
    parts = {"host": url.host, "port": url.port, "user": url.username, "dbname": url.database}
    return {name: str(value) for name, value in {**parts, **url.query}.items()} | {
        "password": password
    }


def test_a_study_runs_on_it_and_its_dump_is_restored(home: StudyFolder, place: Path) -> None:
    with served(home, place) as (server, line):
        password = Path(f"{place}/db/password")
        assert password.stat().st_mode & 0o777 == 0o600
        assert password.stat().st_uid == os.geteuid()
        assert password.read_text().strip() not in server.out

        home.study(storage=line, budget={"trials": 5})
        ended = home.tune()
        assert ended.code == 0, ended.text
        with psycopg.connect(**parts_of(line)) as connection:
            rows = connection.execute(_TRIALS).fetchone()
            role = connection.execute(
                "SELECT rolsuper, rolcreaterole FROM pg_roles WHERE rolname = current_user"
            ).fetchone()
        assert rows == (5,)
        assert role == (False, False)

        second = home.tuner("db", "serve", "--folder", f"{place}/db", f"--port={free_port()}")
        assert second.code == 2
        assert f"by process {server.process.pid} of {socket.gethostname()}" in second.err

        _dump_and_restore(home, line)

        server.signal(signal.SIGTERM)
        stopped = server.wait()
        assert stopped.code == 0, stopped.text
        assert "database system is shut down" in Path(f"{place}/db/log").read_text()


def _dump_and_restore(home: StudyFolder, line: str) -> None:
    dump = home.path / "all.dump"
    done = home.tuner("db", "backup", "-o", str(dump))
    assert done.code == 0, done.text
    assert dump.stat().st_mode & 0o777 == 0o600
    again = home.tuner("db", "backup", "-o", str(dump))
    assert (again.code, again.err) == (2, f"{dump} exists already. Name another file.\n")

    full = home.tuner("db", "restore", str(dump))
    assert full.code == 2
    assert "is not empty" in full.err

    with psycopg.connect(**parts_of(line), autocommit=True) as connection:
        connection.execute("CREATE SCHEMA other")
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
        assert connection.execute("SELECT to_regclass('trials')").fetchone() == (None,)
    restored = home.tuner("db", "restore", str(dump))
    assert restored.code == 0, restored.text
    with psycopg.connect(**parts_of(line)) as connection:
        assert connection.execute(_TRIALS).fetchone() == (5,)
    # Numbers of rows continue where they were.
    home.study(storage=line, budget={"trials": 7})
    assert home.tune().code == 0


def test_after_kill_9_the_next_start_has_everything(home: StudyFolder, place: Path) -> None:
    port = free_port()
    with served(home, place, port=port) as (server, line):
        with psycopg.connect(**parts_of(line)) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 7 AS x")
        postmaster = postmaster_of(place)
        postmaster.kill()
        ended = server.wait()
        assert ended.code == 1
        assert "PostgreSQL ended by itself (exit status -9)" in ended.err
    with served(home, place, port=port) as (server, line):
        assert "was interrupted" in Path(f"{place}/db/log").read_text()
        postmaster = postmaster_of(place)
        os.kill(server.process.pid, signal.SIGKILL)
        # No server is left that nobody looks after.
        wait_until(lambda: not postmaster.is_running(), "the server has ended")
    with (
        served(home, place, port=port) as (_, line),
        psycopg.connect(**parts_of(line)) as connection,
    ):
        assert connection.execute("SELECT x FROM kept").fetchone() == (7,)


def postmaster_of(place: Path) -> psutil.Process:
    return psutil.Process(int(Path(f"{place}/db/data/postmaster.pid").read_text().split()[0]))


def test_other_machines_need_tls_and_the_password(home: StudyFolder, place: Path) -> None:
    with served(home, place, "--host=0.0.0.0") as (_, line):
        parts = parts_of(line)
        assert parts["sslmode"] == "verify-ca"
        # An address of this machine that is not loopback, where it has one.
        with psycopg.connect(**parts) as connection:
            query = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
            assert connection.execute(query).fetchone() == (True,)
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(**{**parts, "password": "x"})
        other = own_address()
        if other is not None:
            with pytest.raises(psycopg.OperationalError, match=r"no encryption|pg_hba"):
                psycopg.connect(**{**parts, "host": other, "sslmode": "disable"})
            psycopg.connect(**{**parts, "host": other}).close()


def own_address() -> str | None:
    for addresses in psutil.net_if_addrs().values():
        for each in addresses:
            if each.family == socket.AF_INET and not each.address.startswith("127."):
                return str(each.address)
    return None


def test_what_cannot_be_served(home: StudyFolder, place: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = home.tuner("db", "serve", f"--folder={place}/new", f"--port={port}")
        assert refused.code == 2
        assert f"Cannot listen on 127.0.0.1:{port}: Address already in use." in refused.err
    assert not Path(f"{place}/new/data").exists()

    refused = home.tuner("db", "serve", f"--folder={place}/new", "--host=192.0.2.1", "--no-tls")
    assert refused.code == 2
    assert "Cannot listen on 192.0.2.1:5432" in refused.err

    refused = home.tuner("db", "serve", "--folder=/proc/db", f"--port={free_port()}")
    assert refused.code == 2
    assert "--folder /proc/db cannot be written" in refused.err

    Path(f"{place}/old/data").mkdir(parents=True)
    Path(f"{place}/old/data/PG_VERSION").write_text("9\n")
    refused = home.tuner("db", "serve", f"--folder={place}/old", f"--port={free_port()}")
    assert refused.code == 2
    assert "was made by PostgreSQL 9, and installed is only" in refused.err

    if os.geteuid() == 0:
        Path(f"{place}/mine").mkdir(mode=0o700)
        refused = home.tuner("db", "serve", f"--folder={place}/mine/db", f"--port={free_port()}")
        assert refused.code == 2
        assert "runs as the user 'postgres', which must be able to enter" in refused.err


def test_backup_of_sqlite_is_a_database(home: StudyFolder) -> None:
    home.study("small.yaml", storage="sqlite:///small.db", budget={"trials": 3})
    assert home.tune(file="small.yaml").code == 0
    done = home.tuner("db", "backup", "small.yaml", "-o", "copy.db")
    assert done.code == 0, done.text
    assert len(home.states(database="copy.db")) == 3


def test_works_behind_pgbouncer_in_transaction_mode(
    home: StudyFolder, postgresql: Postgresql
) -> None:
    url = postgresql.new_database()
    with pgbouncer(postgresql) as port:
        behind = sa.make_url(url).set(port=port).render_as_string()
        home.study("behind.yaml", study="behind", storage=behind, budget={"trials": 30})
        started = [home.start(file="behind.yaml") for _ in range(2)]
        for each in started:
            ended = each.wait()
            assert ended.code == 0, ended.text
        # Transactions of one client go over different connections to the server.
        engine = open_engine(sa.make_url(behind))
        for _ in range(20):
            with engine.connect() as one, engine.connect() as other:
                for each in (one, other):
                    each.execute(sa.text("SELECT 1"))
                    # What this driver tells of its connection.
                    assert each.connection.driver_connection.prepare_threshold is None
                    # Connections to the server are other clients' in turn: their settings stay.
                    limit = sa.text("SHOW idle_in_transaction_session_timeout")
                    assert each.execute(limit).scalar_one() == "0"
        engine.dispose()
        assert home.tuner("status", "behind.yaml").code == 0
    database = open_database(url, read_only=True)
    with database.engine.connect() as connection:
        assert connection.execute(sa.text(_TRIALS)).scalar_one() == 30
        # Without PgBouncer plans are kept.
        assert connection.connection.driver_connection.prepare_threshold == 5
    database.close()
    postgresql.drop_database(url)


@contextmanager
def pgbouncer(postgresql: Postgresql) -> Iterator[int]:
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        if os.environ.get("CI"):
            pytest.fail("pgbouncer is not installed: run .ci/servers")
        pytest.skip("pgbouncer is not installed: run .ci/servers")
    folder = Path(tempfile.mkdtemp(prefix="tuner-pgbouncer-"))
    port = free_port()
    (folder / "users").write_text('"postgres" ""\n')
    (folder / "ini").write_text(
        f"[databases]\n* = host=127.0.0.1 port={postgresql.port}\n[pgbouncer]\n"
        f"listen_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = trust\n"
        f"auth_file = {folder}/users\npool_mode = transaction\ndefault_pool_size = 4\n"
        "unix_socket_dir =\n"
    )
    if os.geteuid() == 0:
        for path in (folder, *folder.iterdir()):
            shutil.chown(path, "postgres")
    daemon = Daemon(
        command=[program, str(folder / "ini")],
        folder=folder,
        user="postgres",
        end=signal.SIGTERM,
    )
    daemon.start()
    try:
        wait_until(lambda: answers(port), "PgBouncer answers")
        yield port
    finally:
        daemon.stop()
        shutil.rmtree(folder)


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def test_a_start_says_that_connections_run_out(home: StudyFolder, postgresql: Postgresql) -> None:
    url = postgresql.new_database()
    home.study("full.yaml", study="full", storage=url, budget={"trials": 2})
    plenty = home.tune(file="full.yaml")
    assert (plenty.code, "connections left" in plenty.out) == (0, False), plenty.text

    home.study("full.yaml", study="full", storage=url, budget={"trials": 4})
    address = url.replace("+psycopg", "")
    with ExitStack() as stack:
        first = stack.enter_context(psycopg.connect(address, autocommit=True))
        query = """SELECT current_setting('max_connections')::int - sum(numbackends)::int
                   FROM pg_stat_database"""
        while (left := first.execute(query).fetchone()) and left[0] > _RESERVED + 3:
            stack.enter_context(psycopg.connect(address))
        few = home.tune(file="full.yaml")
    assert few.code == 0, few.text
    said = re.search(r"has (\d+) of (\d+) connections left; dispatchers .*: 1, each", few.out)
    assert said, few.text
    # Its own is one of those that are used.
    assert int(said[1]) in (1, 2)
    postgresql.drop_database(url)


def _needs_postgresql() -> None:
    try:
        server_programs()
    except LaunchError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


def test_programs_tell_whether_they_have_tls() -> None:
    _needs_postgresql()
    programs = server_programs()
    linked = subprocess.run(
        ["ldd", programs.path("postgres")], capture_output=True, text=True, check=True
    )
    assert programs.has_tls() == ("libssl" in linked.stdout)
