"""Engine options, the same for Optuna's storage and for the tuner's tables."""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from typing import Any

import sqlalchemy as sa

#: Seconds that a write waits for another program's write; SQLite's own default of 5 s is too short
#: for a dashboard that copies the file.
SQLITE_BUSY_TIMEOUT_S = 30
#: Maximum seconds of a statement in a read-only command.
READING_LIMIT_S = 60.0
#: Instructions of SQLite's virtual machine between two time checks: about a millisecond.
_N_INSTRUCTIONS = 20_000
_ENDS_AT_KEY = "tuner: when the statement ends"
_CONNECT_TIMEOUT_S = 10
# A server whose cable was cut says nothing: without these a write would wait for hours.
_LIBPQ = {
    "connect_timeout": _CONNECT_TIMEOUT_S,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "application_name": "tuner",
}
#: Server timeouts for lost clients. A machine that was cut off or froze within a transaction holds
#: the study's row, for which all other dispatchers wait; by its own defaults the server notices
#: after two hours. Milliseconds and seconds, in PostgreSQL's own units.
_SERVER_SIDE = {
    "tcp_keepalives_idle": "15",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
_IDLE_LIMIT = {"idle_in_transaction_session_timeout": "5000"}
#: Excludes what the user's URL sets (`options`) and what was set for the role or the database.
_SET = """
    SELECT set_config(name, %s, false) FROM pg_settings WHERE name = %s
    AND source NOT IN ('client', 'user', 'database', 'database user')
"""
_MYSQL = {
    "connect_timeout": _CONNECT_TIMEOUT_S,
    "read_timeout": 60,
    "write_timeout": 60,
    "charset": "utf8mb4",
}
_ARGUMENTS: Mapping[str, Mapping[str, Any]] = {
    "pysqlite": {"timeout": SQLITE_BUSY_TIMEOUT_S},
    "psycopg": _LIBPQ,
    "psycopg2": _LIBPQ,
    "pymysql": _MYSQL,
    "mysqldb": _MYSQL,
}


def open_engine(url: sa.URL, *, read_only: bool = False) -> sa.Engine:
    """Engine for `Access`, which detects connections that were closed while idle.

    Args:
        url: URL of the database.
        read_only: Change nothing about an SQLite file, including its journal mode.
    """
    options = engine_options(url, read_only=read_only)
    engine = sa.create_engine(url, **{**options, "pool_pre_ping": False})
    set_up_connections(engine, read_only=read_only)
    return engine


def engine_options(url: sa.URL, *, read_only: bool = False) -> dict[str, Any]:
    """Arguments of `create_engine`. Values in the URL take precedence.

    Args:
        url: URL of the database.
        read_only: The database refuses every write, from the first statement on.
    """
    arguments = _ARGUMENTS.get(url.get_driver_name(), {})
    options: dict[str, Any] = {
        "connect_args": {k: v for k, v in arguments.items() if k not in url.query}
    }
    if url.get_backend_name() != "sqlite":
        options["pool_pre_ping"] = True
    events: list[tuple[Callable[[Any, object], None], str]] = []
    if url.get_driver_name() == "psycopg":
        # A reader holds no lock, and may pause between statements.
        settings = _SERVER_SIDE if read_only else {**_SERVER_SIDE, **_IDLE_LIMIT}
        events.append((partial(_set_up_psycopg, settings), "connect"))
    if read_only and (refuse_writes := _REFUSALS.get(url.get_driver_name())):
        events.append((refuse_writes, "connect"))
    if events:
        options["pool_events"] = events
    if url.get_backend_name() == "mysql":
        # PostgreSQL's level: after a wait for a lock, the other transaction's writes are visible.
        options["isolation_level"] = "READ COMMITTED"
    return options


def set_up_connections(engine: sa.Engine, *, read_only: bool = False) -> None:
    """Makes every connection of an SQLite engine one in WAL mode, unless it only reads."""
    if engine.dialect.name == "sqlite":
        sa.event.listen(engine, "connect", _set_foreign_keys if read_only else _set_pragmas)
        engine.dispose()
        if read_only:
            limit_statements(engine, READING_LIMIT_S)


def limit_statements(engine: sa.Engine, limit_s: float) -> None:
    """Ends a statement on SQLite that has taken so long, as servers do; also while rows are read.

    A view of a hostile file can be a query without end.
    """

    def connect(connection: sqlite3.Connection, record: sa.pool.ConnectionPoolEntry) -> None:
        info = record.info

        def is_late() -> bool:
            return bool(time.monotonic() > info.get(_ENDS_AT_KEY, math.inf))

        connection.set_progress_handler(is_late, _N_INSTRUCTIONS)

    def execute(connection: sa.Connection, *_: object) -> None:
        connection.info[_ENDS_AT_KEY] = time.monotonic() + limit_s

    sa.event.listen(engine, "connect", connect)
    sa.event.listen(engine, "before_cursor_execute", execute)
    engine.dispose()


def without_idle_limit(connection: sa.Connection) -> None:
    """Disables PostgreSQL's limit for the idle time inside this transaction."""
    if connection.dialect.name == "postgresql":
        for name in _IDLE_LIMIT:
            connection.exec_driver_sql(f"SET LOCAL {name} = 0")


def _set_up_psycopg(settings: Mapping[str, str], connection: Any, _record: object) -> None:
    # Clients are told another process id than the server's, because PgBouncer passes their
    # cancellations on.
    (pid,) = connection.execute("SELECT pg_backend_pid()", prepare=False).fetchone()
    if pid != connection.info.backend_pid:
        # In transaction mode each transaction goes over any of its connections to the server, where
        # a prepared statement may be missing, or be another client's; a setting would stay behind.
        connection.prepare_threshold = None
    else:
        for name, value in settings.items():
            connection.execute(_SET, (value, name), prepare=False)
    connection.commit()


def _set_query_only(connection: sqlite3.Connection, _record: object) -> None:
    connection.execute("PRAGMA query_only=ON")


# By the driver, which then begins each transaction as one that only reads. A setting of the session
# would stay behind in a pool of connections that stands before the server (PgBouncer).
def _begin_read_only_with_psycopg(connection: Any, _record: object) -> None:
    connection.read_only = True


def _begin_read_only_with_psycopg2(connection: Any, _record: object) -> None:
    connection.readonly = True


def _set_session_read_only(connection: Any, _record: object) -> None:
    with closing(connection.cursor()) as cursor:
        cursor.execute("SET SESSION TRANSACTION READ ONLY")


#: Makes a driver's connection read-only.
_REFUSALS: Mapping[str, Callable[[Any, object], None]] = {
    "pysqlite": _set_query_only,
    "psycopg": _begin_read_only_with_psycopg,
    "psycopg2": _begin_read_only_with_psycopg2,
    "pymysql": _set_session_read_only,
    "mysqldb": _set_session_read_only,
}


def _set_pragmas(connection: sqlite3.Connection, record: object) -> None:
    # WAL lets the dashboard read while the dispatcher writes; with it NORMAL never corrupts the
    # file and loses nothing when a process dies (https://sqlite.org/pragma.html#pragma_synchronous).
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL"):
        connection.execute(f"PRAGMA {pragma}")
    _set_foreign_keys(connection, record)


def _set_foreign_keys(connection: sqlite3.Connection, _record: object) -> None:
    connection.execute("PRAGMA foreign_keys=ON")
