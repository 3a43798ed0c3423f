"""Opens the one database of a study: tables made, versions checked, errors in the user's words."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import sqlalchemy as sa
from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage
from sqlalchemy import exc

from tuner.config.storage_url import masked_url, with_driver
from tuner.errors import EXIT_BAD_INPUT, EXIT_STUDY_FAILED, StoreError
from tuner.store.connection.damage import note_look
from tuner.store.connection.database_file import FileWatch, places_for_copies
from tuner.store.connection.driver_errors import missing_driver, reason_of
from tuner.store.connection.engine import engine_options, open_engine, set_up_connections
from tuner.store.connection.filesystem import check_is_local, path_of
from tuner.store.connection.transactions import Access
from tuner.store.optuna_tables.storage import BufferedStorage
from tuner.store.schema.revision import (
    OPTUNA_REVISION,
    alone,
    check_revision,
    has_optunas_tables,
    is_half_made,
    make_optunas_tables,
    make_tables,
    optuna_revision,
    stored_revision,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """An open database: Optuna's storage on it and the way to the tuner's own tables."""

    access: Access
    storage: BufferedStorage
    #: The URL without its password, for display and records.
    shown_url: str
    #: Checks whether an SQLite file is still the open one; None if it is not watched.
    file: FileWatch | None = None

    @property
    def engine(self) -> sa.Engine:
        return self.access.engine

    def close(self) -> None:
        """Closes all connections. Unflushed rows are lost. Safe to call twice."""
        if self.file is not None and not self.file.is_intact:
            return  # Its connections must not be closed.
        self.storage.close()
        if self.file is not None:
            self.file.close()

    def rescue(self) -> Path | None:
        """Copies all committed data into a new file and switches to it.

        Returns:
            The file; None if no copy can be made. The database is then no longer used.
        """
        assert self.file is not None, "only an SQLite file can be lost"
        if not self.file.is_intact:
            self.access.shut("The database file was overwritten")
            self.file.leave_as_it_is(self.engine.pool, *self.storage.engines())
            return None
        for place in places_for_copies(self.file.path):
            with suppress(OSError, sqlite3.Error):
                self.file.copy_to(place)
                url = sa.URL.create("sqlite", database=str(place))
                self.access.move_to(open_engine(url))
                self.storage.move_to(partial(optuna_backend, url, makes_tables=False))
                return place
        self.access.shut("The database file is gone")
        return None


def watched(database: Database) -> Database:
    """The same, which notices that an SQLite file was deleted or replaced while it is used.

    Raises:
        StoreError: If the file is gone already.
    """
    path = path_of(database.engine.url)
    if path is None:
        return database
    try:
        return replace(database, file=FileWatch(path))
    except (OSError, sqlite3.Error) as error:
        raise StoreError(
            f"The database {database.shown_url} cannot be opened: {error}.",
            exit_code=EXIT_STUDY_FAILED,
        ) from error


def shown_url(url: str) -> str:
    """The URL without its password, wherever that is."""
    return masked_url(url)


def parse_url(url: str) -> sa.URL:
    """Parses a database URL.

    Raises:
        StoreError: If it is not a database URL. The message never repeats a possible secret.
    """
    try:
        parsed = sa.make_url(with_driver(url))
        parsed.get_dialect()
    except (exc.ArgumentError, ValueError):
        # The latter for a port that is no number. Without the cause, which can hold a password.
        raise StoreError(
            "storage is not a database URL. Write one such as sqlite:///study.db, "
            "postgresql://user:${PASSWORD}@host/name or mysql://user:${PASSWORD}@host/name."
        ) from None
    except exc.NoSuchModuleError as error:
        raise StoreError(
            f"storage names {parsed.drivername!r}, which is no database that SQLAlchemy knows. "
            "Use sqlite, postgresql+psycopg or mysql+pymysql."
        ) from error
    except ModuleNotFoundError as error:
        raise StoreError(missing_driver(error)) from error
    return parsed


def open_database(url: str, *, read_only: bool = False) -> Database:
    """Opens a database and creates missing tables.

    Args:
        url: Any SQLAlchemy URL.
        read_only: Create nothing: no file and no table.

    Raises:
        StoreError: If it is malformed, unreachable, missing, has an older or newer schema, or is an
            SQLite file on a file system that SQLite does not support.
    """
    parsed = parse_url(url)
    check_file(parsed, must_exist=read_only)
    if read_only and path_of(parsed) is not None:
        note_look(parsed.render_as_string(hide_password=False))
    with store_errors(url, exit_code=EXIT_BAD_INPUT):
        engine = open_engine(parsed, read_only=read_only)
        with engine.connect() as connection:
            revision = stored_revision(connection)
            is_of_our_optuna = optuna_revision(connection) == OPTUNA_REVISION
        check_revision(revision, parsed, shown_url(url))
        if not read_only and revision is None:
            _make_in_new_database(engine, parsed)
        elif not is_of_our_optuna:
            _check_with_optuna(parsed)
    access = Access(engine, shown_url(url))
    make_backend = partial(optuna_backend, parsed, makes_tables=False, read_only=read_only)
    return Database(
        access=access, storage=BufferedStorage(make_backend, access), shown_url=shown_url(url)
    )


def check_file(url: sa.URL, *, must_exist: bool) -> None:
    """Checks an SQLite file.

    Raises:
        StoreError: If it does not exist, or is on a file system that SQLite does not support.
    """
    path = path_of(url)
    if path is None:
        return
    check_is_local(path)
    if must_exist and not path.exists():
        raise StoreError(f"There is no database at {shown_url(str(url))} yet. Run the study first.")


@contextmanager
def store_errors(url: str, *, exit_code: int = EXIT_STUDY_FAILED) -> Iterator[None]:
    """Converts a database's errors to a `StoreError` that says what to do, without a password."""
    try:
        yield
    except exc.DBAPIError as error:
        raise StoreError(
            f"{reason_of(error)} (storage {shown_url(url)})", exit_code=exit_code
        ) from error
    except StorageInternalError as error:
        # Optuna's own words are of its commit; the database's are behind them.
        cause = error.__cause__
        reason = reason_of(cause) if isinstance(cause, exc.DBAPIError) else str(error)
        raise StoreError(f"{reason} (storage {shown_url(url)})", exit_code=exit_code) from error
    except exc.SQLAlchemyError as error:
        raise StoreError(
            f"The database {shown_url(url)} could not be used: {error}", exit_code=exit_code
        ) from error
    except ModuleNotFoundError as error:
        raise StoreError(missing_driver(error)) from error


def _make_in_new_database(engine: sa.Engine, url: sa.URL) -> None:
    with alone(engine):
        with engine.connect() as connection:
            is_new = not has_optunas_tables(connection)
            must_check = not is_new and not is_half_made(connection)
        if must_check:
            # Those of a study of Optuna alone, which refuses them where they are too old.
            _check_with_optuna(url)
        if not is_new:
            optuna_backend(url, makes_tables=True).engine.dispose()
        with engine.begin() as connection:
            if is_new:
                make_optunas_tables(connection)
            make_tables(connection)


#: In the words of SQLite, PostgreSQL and MySQL.
_WRITE_REFUSED = r"readonly database|in a (read-only|READ ONLY) transaction"


def _check_with_optuna(url: sa.URL) -> None:
    """Lets Optuna refuse tables of another version, and keeps it from writing into them.

    Raises:
        StoreError: If it does.
    """
    try:
        optuna_backend(url, makes_tables=False, read_only=True).engine.dispose()
    except (StorageInternalError, exc.DBAPIError) as error:
        cause = error.__cause__ if isinstance(error, StorageInternalError) else error
        if not re.search(_WRITE_REFUSED, str(cause)):
            raise
        # Optuna would note a version where there is none yet.
        raise StoreError(
            f"The tables of {shown_url(str(url))} are of an Optuna that noted no version of them, "
            "or another program made them. Upgrade a copy first: `$ optuna storage upgrade "
            "--storage $STORAGE_URL`.",
            exit_code=EXIT_BAD_INPUT,
        ) from error


def optuna_backend(url: sa.URL, *, makes_tables: bool, read_only: bool = False) -> RDBStorage:
    """Optuna's storage on the same database.

    Args:
        url: URL of the database.
        makes_tables: Whether to create Optuna's missing tables.
        read_only: Whether the database refuses every write.

    Raises:
        StoreError: If Optuna refuses the tables.
    """
    try:
        backend = RDBStorage(
            url.render_as_string(hide_password=False),
            engine_kwargs=engine_options(url, read_only=read_only),
            skip_table_creation=not makes_tables,
        )
    except RuntimeError as error:
        raise StoreError(
            f"Optuna refuses the database {shown_url(str(url))}: {error}", exit_code=EXIT_BAD_INPUT
        ) from error
    set_up_connections(backend.engine, read_only=read_only)
    return backend
