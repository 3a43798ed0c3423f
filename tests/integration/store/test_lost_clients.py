"""What a PostgreSQL server does about clients that are cut off within a transaction."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy import exc

from tests.servers import Postgresql
from tuner.store.connection.engine import open_engine, without_idle_limit
from tuner.store.schema.revision import alone

_LIMIT = "idle_in_transaction_session_timeout"
_LIMIT_S = 0.1


@pytest.fixture
def server_url(postgresql: Postgresql) -> Iterator[sa.URL]:
    url = postgresql.new_database()
    yield sa.make_url(url)
    postgresql.drop_database(url)


def setting(url: sa.URL, name: str, *, read_only: bool = False) -> str:
    engine = open_engine(url, read_only=read_only)
    with engine.connect() as connection:
        value = connection.exec_driver_sql(f"SHOW {name}").scalar_one()
    engine.dispose()
    return str(value)


def impatient(url: sa.URL) -> sa.URL:
    return url.update_query_dict({"options": f"-c {_LIMIT}={_LIMIT_S * 1000:.0f}"})


def test_server_ends_lost_clients_soon(server_url: sa.URL) -> None:
    assert setting(server_url, _LIMIT) == "5s"
    assert setting(server_url, "tcp_keepalives_idle") == "15"
    assert setting(server_url, "tcp_user_timeout") == "30000"


def test_reader_may_take_its_time(server_url: sa.URL) -> None:
    assert setting(server_url, _LIMIT, read_only=True) == "0"
    assert setting(server_url, "tcp_keepalives_idle", read_only=True) == "15"


def test_value_in_the_url_wins(server_url: sa.URL) -> None:
    assert setting(impatient(server_url), _LIMIT) == "100ms"


def test_value_of_the_database_wins(server_url: sa.URL, postgresql: Postgresql) -> None:
    postgresql.execute(f"ALTER DATABASE {server_url.database} SET {_LIMIT} = '7s'")
    assert setting(server_url, _LIMIT) == "7s"


def test_lock_of_a_silent_client_is_released(server_url: sa.URL) -> None:
    engine = open_engine(impatient(server_url))
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE rows (n INTEGER)")
        connection.exec_driver_sql("INSERT INTO rows VALUES (1)")
    with engine.connect() as silent, engine.connect() as other:
        silent.exec_driver_sql("SELECT n FROM rows FOR UPDATE")
        other.exec_driver_sql("UPDATE rows SET n = 2")  # Waits for as long as the lock is held.
        with pytest.raises(exc.DBAPIError):
            silent.exec_driver_sql("SELECT 1")
    engine.dispose()


@pytest.mark.slow
def test_making_of_tables_and_long_changes_may_take_their_time(server_url: sa.URL) -> None:
    engine = open_engine(impatient(server_url))
    with alone(engine):
        time.sleep(5 * _LIMIT_S)
        with engine.connect() as other:
            locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted"
            assert other.exec_driver_sql(locks).scalar_one() == 1
    with engine.begin() as connection:
        without_idle_limit(connection)
        time.sleep(5 * _LIMIT_S)
        assert connection.exec_driver_sql("SELECT 1").scalar_one() == 1
    with engine.connect() as connection:
        assert connection.exec_driver_sql(f"SHOW {_LIMIT}").scalar_one() == "100ms"
    engine.dispose()
