"""A new database for each test, of each kind, from tables that are made once."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.servers import Mariadb, Postgresql, Server, run_mariadb, run_postgresql, wait_for
from tuner.store.connection.database import open_database
from tuner.store.schema.models import TunerBase

KINDS = ("sqlite", "postgresql", "mariadb")
SERVERS = KINDS[1:]
#: For what several dispatchers share whatever the server is: that claims and locks hold on each of
#: them is for `test_peers`, `test_fleet` and `test_outages` to try.
ONE_SERVER_BY_DAY = ("postgresql", pytest.param("mariadb", marks=pytest.mark.nightly))


def new_database(folder: Path) -> str:
    """URL of the folder's `study.db`, which is made if it is not there."""
    path = folder / "study.db"
    if not path.exists():
        path.write_bytes(_empty())
    return f"sqlite:///{path}"


@functools.cache
def _empty() -> bytes:
    # Optuna takes longer to make its tables than most tests last.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "empty.db"
        open_database(f"sqlite:///{path}").close()
        return path.read_bytes()


@pytest.fixture(scope="session")
def postgresql_of_process() -> Iterator[Postgresql]:
    with run_postgresql() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_of_process() -> Iterator[Mariadb]:
    with run_mariadb() as server:
        yield server


@pytest.fixture
def postgresql(postgresql_of_process: Postgresql) -> Iterator[Postgresql]:
    with watched(postgresql_of_process):
        yield postgresql_of_process


@pytest.fixture
def mariadb(mariadb_of_process: Mariadb) -> Iterator[Mariadb]:
    with watched(mariadb_of_process):
        yield mariadb_of_process


@contextmanager
def watched(server: Postgresql | Mariadb) -> Iterator[None]:
    """Starts a server again that died in an earlier test; fails the test in which it dies.

    Raises:
        pytest.fail.Exception: How it ended, and the end of its log.
    """
    if not server.daemon.is_running:
        server.daemon.start()
        wait_for(server)
        # It may have lost what it confirmed last, such as the removal of rows.
        _free_of(server).clear()
    try:
        yield
    finally:
        if not server.daemon.is_running:
            pytest.fail(server.daemon.how_it_ended())


@pytest.fixture(params=KINDS)
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """URL of a database without tables, of each kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/study.db"
        return
    server: Server = request.getfixturevalue(request.param)
    url = server.new_database()
    yield url
    server.drop_database(url)


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """URL of a database with all tables and no rows, of each kind."""
    if request.param == "sqlite":
        yield new_database(tmp_path)
        return
    yield from _lent(request.getfixturevalue(request.param))


def _lent(server: Server) -> Iterator[str]:
    """A server's database with tables, to be given back empty: emptying is a tenth of making."""
    free = _free_of(server)
    url = free.pop() if free else _with_tables(server)
    yield url
    server.empty_database(url, _tables_with_rows())
    free.append(url)


@functools.cache
def _free_of(server: Server) -> list[str]:
    return []


def _with_tables(server: Server) -> str:
    url = server.new_database()
    open_database(url).close()
    return url


@functools.cache
def _tables_with_rows() -> tuple[str, ...]:
    from optuna.storages._rdb.models import BaseModel

    names = {*BaseModel.metadata.tables, *TunerBase.metadata.tables}
    return tuple(sorted(names - {"version_info"}))
