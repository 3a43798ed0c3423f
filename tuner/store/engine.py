"""How the program reaches a database: the same options for Optuna's storage and for our tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

#: How long a write waits for another program's write; SQLite's own default of 5 s is too short
#: for a dashboard that copies the file.
SQLITE_BUSY_TIMEOUT_S = 30
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
    """For `Access`, which finds out itself that a connection was closed while it was idle.

    Args:
        url: Of the database.
        read_only: Change nothing about an SQLite file, not even how it is written.
    """
    engine = sa.create_engine(url, **{**engine_options(url), "pool_pre_ping": False})
    set_up_connections(engine, read_only=read_only)
    return engine


def engine_options(url: sa.URL) -> dict[str, Any]:
    """Arguments of `create_engine`. What the URL itself says wins."""
    arguments = _ARGUMENTS.get(url.get_driver_name(), {})
    options: dict[str, Any] = {
        "connect_args": {k: v for k, v in arguments.items() if k not in url.query}
    }
    if url.get_backend_name() != "sqlite":
        options["pool_pre_ping"] = True
    if url.get_backend_name() == "mysql":
        # As PostgreSQL has it: who waited for a lock then sees what the other one wrote.
        options["isolation_level"] = "READ COMMITTED"
    return options


def set_up_connections(engine: sa.Engine, *, read_only: bool = False) -> None:
    """Makes every connection of an SQLite engine one in WAL mode, unless it only reads."""
    if engine.dialect.name == "sqlite":
        sa.event.listen(engine, "connect", _set_foreign_keys if read_only else _set_pragmas)
        engine.dispose()


def _set_pragmas(connection: sqlite3.Connection, record: object) -> None:
    # WAL lets the dashboard read while the dispatcher writes; with it NORMAL never corrupts the
    # file and loses nothing when a process dies (https://sqlite.org/pragma.html#pragma_synchronous).
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL"):
        connection.execute(f"PRAGMA {pragma}")
    _set_foreign_keys(connection, record)


def _set_foreign_keys(connection: sqlite3.Connection, _record: object) -> None:
    connection.execute("PRAGMA foreign_keys=ON")
