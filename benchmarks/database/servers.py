"""Where a measure's database is: a new file, or a new database of a PostgreSQL server."""

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from tuner.store.connection.database import parse_url

SQLITE, POSTGRESQL = "sqlite", "postgresql"
KINDS = (SQLITE, POSTGRESQL)

_HOST = "127.0.0.1"
_START_TIMEOUT_S = 60.0
_POLL_S = 0.05
#: Where Debian keeps PostgreSQL's programs, which are on nobody's PATH.
_DEBIAN = Path("/usr/lib/postgresql")


@contextmanager
def new_database(kind: str, server_url: str | None) -> Iterator[str]:
    """The URL of an empty database, which is removed at the end.

    Args:
        kind: One of `KINDS`.
        server_url: Any database of the PostgreSQL server where one may be made.
    """
    if kind == SQLITE:
        with tempfile.TemporaryDirectory(prefix="bench-database-") as folder:
            yield f"sqlite:///{folder}/study.db"
        return
    assert server_url is not None, "a database of a server needs its server"
    url, name = parse_url(server_url), f"tuner_bench_{secrets.token_hex(4)}"
    _execute(url, f"CREATE DATABASE {name}")
    try:
        yield url.set(database=name).render_as_string(hide_password=False)
    finally:
        _execute(url, f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def server_for(
    kinds: Sequence[str], url: str | None, *, max_connections: int = 100
) -> Iterator[str | None]:
    """The server at `url`, or one that runs as long as this; None where none is needed."""
    if POSTGRESQL not in kinds or url is not None:
        yield url
        return
    with run_postgresql(max_connections) as own_url:
        yield own_url


@contextmanager
def run_postgresql(max_connections: int = 100) -> Iterator[str]:
    """A PostgreSQL of this call, on loopback, in a folder of its own, with the settings it has.

    Nothing is switched off to make it quick: a commit is on the disk before it returns.
    """
    programs, folder = _programs(), Path(tempfile.mkdtemp(prefix="bench-postgresql-"))
    as_owner: dict[str, Any] = {"cwd": folder, "stdin": subprocess.DEVNULL}
    if os.geteuid() == 0:  # PostgreSQL refuses to be root.
        as_owner |= {"user": "postgres", "group": "postgres", "extra_groups": []}
        os.chown(folder, pwd.getpwnam("postgres").pw_uid, pwd.getpwnam("postgres").pw_gid)
    made = [f"{programs}/initdb", "-D", f"{folder}/data", "-A", "trust", "-U", "postgres"]
    port = _free_port()
    limit = f"-cmax_connections={max_connections}"
    words = [
        f"-p{port}",
        limit,
        f"-clisten_addresses={_HOST}",
        f"-cunix_socket_directories={folder}",
    ]
    try:
        subprocess.run([*made, "-E", "UTF8"], check=True, stdout=subprocess.DEVNULL, **as_owner)
        command = [f"{programs}/postgres", "-D", f"{folder}/data", *words]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, **as_owner)
        try:
            url = f"postgresql+psycopg://postgres@{_HOST}:{port}/postgres"
            _wait_for(url, process, folder / "log")
            yield url
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(_START_TIMEOUT_S)
    finally:
        shutil.rmtree(folder)


def server_version(url: str) -> str:
    engine = sa.create_engine(parse_url(url))
    with engine.connect() as connection:
        version = str(connection.exec_driver_sql("SHOW server_version").scalar())
    engine.dispose()
    return version


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    give_up_at_s = time.monotonic() + _START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < give_up_at_s:
        with suppress(sa.exc.OperationalError):
            server_version(url)
            return
        time.sleep(_POLL_S)
    raise SystemExit(f"PostgreSQL did not start:\n{log.read_text(errors='replace')}")


def _execute(url: sa.URL, statement: str) -> None:
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(statement)
    engine.dispose()


def _programs() -> Path:
    found = sorted(_DEBIAN.glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("postgres")
    if not found and on_path is None:
        raise SystemExit(
            "PostgreSQL's programs are not installed: run .ci/servers, name a server with --url, "
            "or measure --databases sqlite."
        )
    return found[-1].parent if found else Path(str(on_path)).resolve().parent


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
        return port
