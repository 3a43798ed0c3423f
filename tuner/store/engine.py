"""How the program reaches a database: one engine a database, SQLite in WAL mode."""

from __future__ import annotations

import sqlite3

import sqlalchemy as sa

#: How long a write waits for another program's write; SQLite's own default of 5 s is too short
#: for a dashboard that copies the file.
SQLITE_BUSY_TIMEOUT_S = 30


def open_engine(url: sa.URL) -> sa.Engine:
    if url.get_backend_name() != "sqlite":
        return sa.create_engine(url, pool_pre_ping=True)
    engine = sa.create_engine(url, connect_args={"timeout": SQLITE_BUSY_TIMEOUT_S})
    sa.event.listen(engine, "connect", _set_pragmas)
    return engine


def _set_pragmas(connection: sqlite3.Connection, _record: object) -> None:
    # WAL lets the dashboard read while the dispatcher writes; with it NORMAL never corrupts the
    # file and loses nothing when a process dies (https://sqlite.org/pragma.html#pragma_synchronous).
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")
