"""Read-only database access, which can't write to, lock or slow a study.

An SQLite file is opened read-only (https://sqlite.org/uri.html, `mode=ro`); in WAL mode readers and
the writer don't block each other. On a server each transaction is read-only and each statement has
a timeout of some seconds. Transactions are short: an open one keeps an SQLite log from being
truncated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import sqlalchemy as sa

from tuner.app.data.file_identity import identity_of, log_of
from tuner.errors import EXIT_BAD_INPUT, StoreError
from tuner.queries.locate import snapshot
from tuner.store.connection.database import check_file, parse_url, shown_url, store_errors
from tuner.store.connection.engine import engine_options, limit_statements
from tuner.store.connection.filesystem import path_of
from tuner.store.schema.revision import check_revision, stored_revision

T = TypeVar("T")

STATEMENT_TIMEOUT_S = 15


class ReadOnlyDatabase:
    """Reads one database, each time from a consistent snapshot.

    Args:
        url: Any SQLAlchemy URL.

    Raises:
        StoreError: If it is malformed, missing, unreachable or has another schema.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self.shown_url = shown_url(url)
        parsed = parse_url(url)
        check_file(parsed, must_exist=True)
        path = path_of(parsed)
        self._path = path.resolve() if path is not None else None
        # Before the file is opened: a file that replaces it meanwhile is noticed at the first read.
        self._file = identity_of(self._path) if self._path else None
        self._log = identity_of(log_of(self._path)) if self._path else None
        with store_errors(url, exit_code=EXIT_BAD_INPUT):
            self._engine = _open(parsed)
            with self._engine.connect() as connection:
                revision = stored_revision(connection)
            check_revision(revision, parsed, self.shown_url)

    def read(self, work: Callable[[sa.Connection], T]) -> T:
        """Runs a read-only transaction.

        Raises:
            StoreError: If the database can't be read now, or its file was deleted or replaced.
        """
        if not self.is_current:
            raise StoreError(f"The database {self.shown_url} was deleted or replaced.")
        self._follow_log()
        with store_errors(self._url), snapshot(self._engine) as connection:
            return work(connection)

    @property
    def is_current(self) -> bool:
        """Whether the path still names the file that is open; always true for a server."""
        if self._path is not None and identity_of(self._path) != self._file:
            # For good: once no connection holds the old file, a new one may get its inode.
            self._file = None
        return self._path is None or self._file is not None

    def _follow_log(self) -> None:
        """Reconnects if another write-ahead log has replaced the open one."""
        if self._path is None:
            return
        log = identity_of(log_of(self._path))
        if self._log is not None and log != self._log:
            self._engine.dispose()
        self._log = log

    def close(self) -> None:
        """Lets every connection go. Safe to call twice."""
        self._file = None
        self._engine.dispose()


def _open(url: sa.URL) -> sa.Engine:
    path = path_of(url)
    if path is not None:
        query = {**url.query, "mode": "ro", "uri": "true"}
        url = url.set(database=path.resolve().as_uri(), query=query)
    engine = sa.create_engine(url, **engine_options(url))
    sa.event.listen(engine, "connect", _SET_UP[engine.dialect.name])
    if path is not None:
        limit_statements(engine, STATEMENT_TIMEOUT_S)
    return engine


def _on_sqlite(connection: Any, _record: object) -> None:
    connection.execute("PRAGMA query_only=ON")


def _on_postgresql(connection: Any, _record: object) -> None:
    # Outside of a transaction, which would take the settings back with it.
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = on")
        cursor.execute(f"SET statement_timeout = {STATEMENT_TIMEOUT_S * 1000}")
    connection.autocommit = False


def _on_mysql(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute("SET SESSION TRANSACTION READ ONLY")
    cursor.execute("SELECT VERSION()")
    if "mariadb" in cursor.fetchone()[0].lower():
        cursor.execute(f"SET SESSION max_statement_time = {STATEMENT_TIMEOUT_S}")
    else:
        cursor.execute(f"SET SESSION max_execution_time = {STATEMENT_TIMEOUT_S * 1000}")
    cursor.close()


_SET_UP = {
    "sqlite": _on_sqlite,
    "postgresql": _on_postgresql,
    "mysql": _on_mysql,
    "mariadb": _on_mysql,
}
