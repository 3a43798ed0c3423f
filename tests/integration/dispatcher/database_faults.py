"""A database that refuses, or that is cut off at a commit."""

from __future__ import annotations

import sqlite3

import sqlalchemy as sa

from tuner.store.connection.database import Database


class DiskFull:
    """Makes writes to a database fail, as on a full disk, while it is entered."""

    def __init__(self, database: Database) -> None:
        self._engine = database.engine
        self.n_refused = 0

    def __enter__(self) -> DiskFull:
        sa.event.listen(self._engine, "before_cursor_execute", self._refuse)
        return self

    def __exit__(self, *_: object) -> None:
        sa.event.remove(self._engine, "before_cursor_execute", self._refuse)

    def _refuse(self, *arguments: object) -> None:
        if str(arguments[2]).split()[0] in ("INSERT", "UPDATE", "DELETE"):
            self.n_refused += 1
            error = sqlite3.OperationalError("database or disk is full")
            raise sa.exc.OperationalError(str(arguments[2]), None, error)


class CutCommit:
    """Cuts the connection at one commit, while it is entered.

    Args:
        database: Whose.
        number: Of the commit, from 1.
        is_done: Whether the database still heard it, and only its answer is lost.
    """

    def __init__(self, database: Database, number: int, *, is_done: bool) -> None:
        self._engine = database.engine
        self._number = number
        self._is_done = is_done
        self.n_seen = 0

    def __enter__(self) -> CutCommit:
        sa.event.listen(self._engine, "commit", self._cut)
        return self

    def __exit__(self, *_: object) -> None:
        sa.event.remove(self._engine, "commit", self._cut)

    def _cut(self, connection: sa.Connection) -> None:
        self.n_seen += 1
        if self.n_seen != self._number:
            return
        if self._is_done:
            connection.connection.commit()
        error = sqlite3.OperationalError("server closed the connection unexpectedly")
        raise sa.exc.OperationalError("COMMIT", None, error)
