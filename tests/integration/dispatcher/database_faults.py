"""A database that refuses, or that is cut off at a commit."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from weakref import WeakKeyDictionary

import sqlalchemy as sa

from tuner.store.connection.database import Database

_prepared: WeakKeyDictionary[sa.Engine, _Listeners] = WeakKeyDictionary()


class _Listeners:
    """What happens at each statement and each commit of an engine, as it is set at that moment."""

    def __init__(self, engine: sa.Engine) -> None:
        self.at_statement: Callable[[str], None] | None = None
        self.at_commit: Callable[[sa.Connection], None] | None = None
        sa.event.listen(engine, "before_cursor_execute", self._statement)
        sa.event.listen(engine, "commit", self._commit)

    def _statement(self, *arguments: object) -> None:
        if (act := self.at_statement) is not None:
            act(str(arguments[2]))

    def _commit(self, connection: sa.Connection) -> None:
        if (act := self.at_commit) is not None:
            act(connection)


def prepare_faults(database: Database) -> None:
    """Once, before other threads use the database.

    SQLAlchemy iterates over its listeners in each of them: none can be added or removed then.
    """
    _prepared[database.engine] = _Listeners(database.engine)


class DiskFull:
    """Makes writes to a database fail, as on a full disk, while it is entered."""

    def __init__(self, database: Database) -> None:
        self._listeners = _prepared[database.engine]
        self.n_refused = 0

    def __enter__(self) -> DiskFull:
        self._listeners.at_statement = self._refuse
        return self

    def __exit__(self, *_: object) -> None:
        self._listeners.at_statement = None

    def _refuse(self, statement: str) -> None:
        if statement.split()[0] in ("INSERT", "UPDATE", "DELETE"):
            self.n_refused += 1
            error = sqlite3.OperationalError("database or disk is full")
            raise sa.exc.OperationalError(statement, None, error)


class CutCommit:
    """Cuts the connection at one commit, while it is entered.

    Args:
        database: Whose.
        number: Of the commit, from 1.
        is_done: Whether the database still heard it, and only its answer is lost.
    """

    def __init__(self, database: Database, number: int, *, is_done: bool) -> None:
        self._listeners = _prepared[database.engine]
        self._number = number
        self._is_done = is_done
        self.n_seen = 0

    def __enter__(self) -> CutCommit:
        self._listeners.at_commit = self._cut
        return self

    def __exit__(self, *_: object) -> None:
        self._listeners.at_commit = None

    def _cut(self, connection: sa.Connection) -> None:
        self.n_seen += 1
        if self.n_seen != self._number:
            return
        if self._is_done:
            connection.connection.commit()
        error = sqlite3.OperationalError("server closed the connection unexpectedly")
        raise sa.exc.OperationalError("COMMIT", None, error)
