"""Real PostgreSQL and MariaDB servers for tests: on 127.0.0.1, on a port and in a folder of theirs.

Each process of the tests starts its own when the first test asks for one, and they die with it,
however it ends. `.ci/servers` installs what they need.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar

import psycopg
import pymysql
import pytest
import sqlalchemy as sa

_HOST = "127.0.0.1"
_START_TIMEOUT_S = 60.0
_POLL_S = 0.02
_LOG_CHARACTERS = 10_000
_PR_SET_PDEATHSIG = 1
#: Where Debian keeps PostgreSQL's programs, which are on nobody's PATH.
_POSTGRESQL = Path("/usr/lib/postgresql")
_LIBC = ctypes.CDLL(None)
#: One with every sign that has a meaning in a URL.
PASSWORD = "s3cr:e/t@p%41ss#?&+{x}"


class Server(Protocol):
    """A database server with nothing in it that matters."""

    def new_database(self) -> str:
        """Makes an empty database, and returns its URL; everybody may connect."""

    def drop_database(self, url: str) -> None:
        """Ends who is connected, and removes it."""

    def empty_database(self, url: str, tables: Sequence[str]) -> None:
        """Ends who is connected, and removes the rows of these tables."""

    def new_user(self, url: str, password: str) -> str:
        """Makes a user with all rights on a database, who needs a password; returns its name."""


@dataclass(kw_only=True, eq=False)
class Daemon:
    """A server's process, which can be ended and started again."""

    command: Sequence[str]
    folder: Path
    user: str
    #: Ends it at once, its children included.
    end: signal.Signals
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                cwd=self.folder,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                preexec_fn=lambda: _LIBC.prctl(_PR_SET_PDEATHSIG, self.end),
                **_identity(self.user),
            )

    def stop(self) -> None:
        """As in an accident: nobody who is connected is asked. Safe to call twice."""
        if self.process is not None:
            self.process.send_signal(self.end)
            self.process.wait(_START_TIMEOUT_S)
            self.process = None

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def how_it_ended(self) -> str:
        """The status with which it ended, and the end of its log."""
        status = None if self.process is None else self.process.poll()
        log = (self.folder / "log").read_text(errors="replace")[-_LOG_CHARACTERS:]
        return f"{self.command[0]} ended with status {status}. Its log:\n{log}"


@dataclass(frozen=True, kw_only=True)
class Postgresql:
    """PostgreSQL, for whoever connects from this machine."""

    port: int
    daemon: Daemon

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://postgres@{_HOST}:{self.port}"

    def new_database(self) -> str:
        name = _new_name()
        self.execute(f"CREATE DATABASE {name}")
        return f"{self.url}/{name}"

    def drop_database(self, url: str) -> None:
        self.execute(f"DROP DATABASE {_name_in(url)} WITH (FORCE)")

    def empty_database(self, url: str, tables: Sequence[str]) -> None:
        name = _name_in(url)
        self.execute(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
        )
        self.execute(f"TRUNCATE {', '.join(tables)} RESTART IDENTITY", database=name)

    def new_user(self, url: str, password: str, *, is_reader: bool = False) -> str:
        user = _new_name()
        # `pg_hba.conf` lets this group in with a password only.
        self.execute(f"CREATE USER {user} PASSWORD '{password}' IN ROLE secretive")
        if not is_reader:
            self.execute(f"GRANT ALL ON SCHEMA public TO {user}", database=_name_in(url))
        return user

    def execute(self, statement: str, *, database: str = "postgres") -> None:
        with psycopg.connect(
            host=_HOST, port=self.port, user="postgres", dbname=database, autocommit=True
        ) as connection:
            connection.execute(statement.encode())


@dataclass(frozen=True, kw_only=True)
class Mariadb:
    """MariaDB, for whoever connects from this machine as root."""

    port: int
    daemon: Daemon

    @property
    def url(self) -> str:
        return f"mysql+pymysql://root@{_HOST}:{self.port}"

    def new_database(self, characters: str = "utf8mb4") -> str:
        name = _new_name()
        self.execute(f"CREATE DATABASE {name} CHARACTER SET {characters}")
        # PyMySQL otherwise reads all certificates of the system for each connection.
        return f"{self.url}/{name}?ssl_disabled=true"

    def drop_database(self, url: str) -> None:
        self._end_connections(url)
        self.execute(f"DROP DATABASE {_name_in(url)}")

    def empty_database(self, url: str, tables: Sequence[str]) -> None:
        self._end_connections(url)
        # Not TRUNCATE, which takes as long as making the table. Numbers go on where they were.
        statements = ["SET foreign_key_checks = 0", *(f"DELETE FROM {table}" for table in tables)]
        self.execute(*statements, database=_name_in(url))

    def new_user(self, url: str, password: str) -> str:
        user = _new_name()
        self.execute(f"CREATE USER {user}@'{_HOST}' IDENTIFIED BY '{password}'")
        self.execute(f"GRANT ALL ON {_name_in(url)}.* TO {user}@'{_HOST}'")
        return user

    def execute(self, *statements: str, database: str | None = None) -> Sequence[tuple[Any, ...]]:
        """Carries them out; the rows of the last one."""
        with (
            pymysql.connect(
                host=_HOST, port=self.port, user="root", database=database, ssl_disabled=True
            ) as connection,
            connection.cursor() as cursor,
        ):
            for statement in statements:
                cursor.execute(statement)
            connection.commit()
            rows: Sequence[tuple[Any, ...]] = cursor.fetchall()
            return rows

    def _end_connections(self, url: str) -> None:
        threads = f"SELECT id FROM information_schema.processlist WHERE db = '{_name_in(url)}'"
        for (thread,) in self.execute(threads):
            with suppress(pymysql.OperationalError):  # It has ended by itself.
                self.execute(f"KILL {thread}")


@contextmanager
def run_postgresql() -> Iterator[Postgresql]:
    """Starts PostgreSQL, and stops it at the end."""
    with folder_of("postgres") as folder:
        programs = make_cluster(folder)
        (folder / "data" / "pg_hba.conf").write_text(
            f"host all +secretive {_HOST}/32 scram-sha-256\nhost all all {_HOST}/32 trust\n"
        )
        port = _free_port()
        settings = {"listen_addresses": _HOST, "unix_socket_directories": folder, "fsync": "off"}
        words = tuple(f"-c{name}={value}" for name, value in settings.items())
        daemon = Daemon(
            command=[f"{programs}/postgres", "-D", f"{folder}/data", f"-p{port}", *words],
            folder=folder,
            user="postgres",
            end=signal.SIGQUIT,
        )
        with _started(Postgresql(port=port, daemon=daemon)) as server:
            server.execute("CREATE ROLE secretive")
            yield server


@contextmanager
def run_mariadb(*, is_durable: bool = False) -> Iterator[Mariadb]:
    """Starts MariaDB, and stops it at the end.

    Args:
        is_durable: Whether it keeps what it has confirmed when its process is killed.
    """
    program = _program("mariadbd", "/usr/sbin")
    install = _program("mariadb-install-db", "/usr/bin")
    with folder_of("root") as folder:
        # Nothing here has to outlive a power cut: without these the tables take four seconds.
        words = (
            f"--datadir={folder}/data",
            *(["--user=root"] if os.geteuid() == 0 else []),
            *("--innodb-log-file-size=8M", "--innodb-buffer-pool-size=32M"),
            f"--innodb-flush-log-at-trx-commit={2 * is_durable}",
            "--innodb-doublewrite=0",
        )
        access = ("--auth-root-authentication-method=normal", "--skip-test-db")
        _run([install, "--no-defaults", *words, *access], folder, user="root")

        port = _free_port()
        here = (f"--socket={folder}/socket", f"--pid-file={folder}/pid", f"--port={port}")
        net = (f"--bind-address={_HOST}", "--skip-name-resolve", "--skip-log-bin")
        daemon = Daemon(
            command=[program, "--no-defaults", *words, *here, *net],
            folder=folder,
            user="root",
            end=signal.SIGKILL,
        )
        with _started(Mariadb(port=port, daemon=daemon)) as server:
            yield server


S = TypeVar("S", Postgresql, Mariadb)


@contextmanager
def _started(server: S) -> Iterator[S]:
    server.daemon.start()
    try:
        wait_for(server)
        yield server
    finally:
        server.daemon.stop()


def wait_for(server: Postgresql | Mariadb) -> None:
    """Until it answers."""
    give_up_at_s = time.monotonic() + _START_TIMEOUT_S
    while True:
        try:
            server.execute("SELECT 1")
        except (psycopg.OperationalError, pymysql.OperationalError):
            if not server.daemon.is_running or time.monotonic() > give_up_at_s:
                pytest.fail(f"The server did not start. {server.daemon.how_it_ended()}")
            time.sleep(_POLL_S)
        else:
            return


@contextmanager
def folder_of(user: str) -> Iterator[Path]:
    """A temporary folder that belongs to a user, where root may give it away."""
    folder = Path(tempfile.mkdtemp(prefix="tuner-server-"))
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, user)
        yield folder
    finally:
        with suppress(FileNotFoundError):  # A server that ends removes files meanwhile.
            shutil.rmtree(folder)
        shutil.rmtree(folder, ignore_errors=True)


def make_cluster(folder: Path) -> Path:
    """Lays out PostgreSQL's files in `data` of a folder; returns where its programs are."""
    programs = _postgresql_programs()
    words = ("-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
    _run([f"{programs}/initdb", "-D", f"{folder}/data", *words], folder, user="postgres")
    return programs


def _run(command: Sequence[str], folder: Path, *, user: str) -> None:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, **_identity(user)
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _identity(user: str) -> dict[str, Any]:
    """PostgreSQL refuses to be root."""
    if os.geteuid() != 0 or user == "root":
        return {}
    return {"user": user, "group": user, "extra_groups": []}


def _postgresql_programs() -> Path:
    versions = sorted(_POSTGRESQL.glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    if versions:
        return versions[-1].parent
    return Path(_program("postgres")).resolve().parent


def _program(name: str, *folders: str) -> str:
    path = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *folders]))
    if path is None:
        _missing(f"{name} is not installed: run .ci/servers")
    return path


def _missing(reason: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _new_name() -> str:
    return f"t{secrets.token_hex(6)}"


def _name_in(url: str) -> str:
    return str(sa.make_url(url).database)
