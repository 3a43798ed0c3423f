"""Opens the one database of a study: tables made, versions checked, errors in the user's words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from alembic.migration import MigrationContext
from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage
from sqlalchemy import exc

from tuner.config.storage_url import masked_url
from tuner.errors import EXIT_BAD_INPUT, EXIT_STUDY_FAILED, StoreError
from tuner.store.buffered_storage import BufferedStorage
from tuner.store.engine import SQLITE_BUSY_TIMEOUT_S, open_engine
from tuner.store.models import SCHEMA_REVISION, VERSION_TABLE, TunerBase

_DRIVERS = {
    "psycopg": "postgresql",
    "psycopg2": "postgresql",
    "pymysql": "mysql",
    "MySQLdb": "mysql",
}
# Texts of libpq, psycopg and PyMySQL.
_UNREACHABLE = re.compile(
    r"Connection refused|Can't connect to MySQL|could not translate host name"
    r"|failed to resolve host|timed? ?out|No route to host|Network is unreachable"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """An open database: Optuna's storage on it and the engine for the tuner's own tables."""

    engine: sa.Engine
    storage: BufferedStorage
    #: For people and records: the URL with its password hidden.
    shown_url: str

    def close(self) -> None:
        """Lets every connection go. What was not flushed is lost. Safe to call twice."""
        self.storage.close()


def shown_url(url: str) -> str:
    """The URL as it may be shown: without its password, wherever it stands."""
    return masked_url(url)


def parse_url(url: str) -> sa.URL:
    """
    Raises:
        StoreError: If it is not a database URL. The message does not repeat what could be secret.
    """
    try:
        parsed = sa.make_url(url)
        parsed.get_dialect()
    except (exc.ArgumentError, ValueError) as error:
        # The latter for a port that is no number.
        raise StoreError(
            "storage is not a database URL. Write one such as sqlite:///study.db, "
            "postgresql+psycopg://user:${PASSWORD}@host/name or mysql+pymysql://user@host/name."
        ) from error
    except exc.NoSuchModuleError as error:
        raise StoreError(
            f"storage names {parsed.drivername!r}, which is no database that SQLAlchemy knows. "
            "Use sqlite, postgresql+psycopg or mysql+pymysql."
        ) from error
    except ModuleNotFoundError as error:
        raise _missing_driver(error) from error
    return parsed


def open_database(url: str, *, read_only: bool = False) -> Database:
    """Opens a database, making the tables that it lacks.

    Args:
        url: Any SQLAlchemy URL.
        read_only: Make nothing: no file and no table.

    Raises:
        StoreError: If it is malformed, unreachable, of a newer schema, or missing.
    """
    parsed = parse_url(url)
    if read_only and not _exists(parsed):
        raise StoreError(f"There is no database at {shown_url(url)} yet. Run the study first.")
    with store_errors(url, exit_code=EXIT_BAD_INPUT):
        engine = open_engine(parsed)
        _check_revision(engine, shown_url(url))
        backend = _optuna_backend(url, parsed, read_only=read_only)
        if not read_only:
            _make_tables(engine)
    return Database(
        engine=engine, storage=BufferedStorage(backend, engine), shown_url=shown_url(url)
    )


@contextmanager
def store_errors(url: str, *, exit_code: int = EXIT_STUDY_FAILED) -> Iterator[None]:
    """Turns a database's errors into a `StoreError` that says what to do, without a password."""
    try:
        yield
    except exc.DBAPIError as error:
        raise StoreError(
            f"{_reason(error)} (storage {shown_url(url)})", exit_code=exit_code
        ) from error
    except StorageInternalError as error:
        # Optuna's own words are of its commit; the database's are behind them.
        cause = error.__cause__
        reason = _reason(cause) if isinstance(cause, exc.DBAPIError) else str(error)
        raise StoreError(f"{reason} (storage {shown_url(url)})", exit_code=exit_code) from error
    except exc.SQLAlchemyError as error:
        raise StoreError(
            f"The database {shown_url(url)} could not be used: {error}", exit_code=exit_code
        ) from error
    except ModuleNotFoundError as error:
        raise _missing_driver(error) from error


def _optuna_backend(url: str, parsed: sa.URL, *, read_only: bool) -> RDBStorage:
    options: dict[str, object] = {}
    if parsed.get_backend_name() == "sqlite":
        options = {"connect_args": {"timeout": SQLITE_BUSY_TIMEOUT_S}}
    try:
        return RDBStorage(url, engine_kwargs=options, skip_table_creation=read_only)
    except RuntimeError as error:
        raise StoreError(
            f"Optuna refuses the database {shown_url(url)}: {error}", exit_code=EXIT_BAD_INPUT
        ) from error


def _check_revision(engine: sa.Engine, url: str) -> None:
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        found = context.get_current_revision()
    if found is not None and found > SCHEMA_REVISION:
        raise StoreError(
            f"The database {url} was written by a newer tuner (schema {found}; this one knows "
            f"{SCHEMA_REVISION}). Upgrade with `pip install -U tuner`, or name another storage."
        )


def _make_tables(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        if context.get_current_revision() is None:
            _metadata_with_optuna().create_all(connection)
            context._ensure_version_table()
            connection.execute(
                sa.text(f"INSERT INTO {VERSION_TABLE} (version_num) VALUES (:revision)"),
                {"revision": SCHEMA_REVISION},
            )


def _metadata_with_optuna() -> sa.MetaData:
    """Ours, with Optuna's tables beside them so that foreign keys find their targets."""
    from optuna.storages._rdb import models as optuna_models

    metadata = TunerBase.metadata
    for name in ("studies", "trials"):
        if name not in metadata.tables:
            optuna_models.BaseModel.metadata.tables[name].to_metadata(metadata)
    return metadata


def _exists(url: sa.URL) -> bool:
    if url.get_backend_name() != "sqlite" or not url.database or url.database == ":memory:":
        return True
    return Path(url.database).exists()


def _missing_driver(error: ModuleNotFoundError) -> StoreError:
    extra = _DRIVERS.get(error.name or "")
    install = f"pip install 'tuner[{extra}]'" if extra else f"pip install {error.name}"
    return StoreError(
        f"storage needs the Python package {error.name!r}, which is not installed. {install}"
    )


def _reason(error: exc.DBAPIError) -> str:
    text = str(error.orig).strip()
    if "disk is full" in text or "No space left" in text:
        return (
            "The disk is full: the database could not be written. Free some space and start the "
            "same command again; trials that finished before are safe"
        )
    if "unable to open database file" in text:
        return "The database file cannot be opened: its folder is missing or not writable"
    if "readonly database" in text:
        return "The database file is read-only. Make it writable or name another storage"
    if "no such table" in text:
        return "The database has no study in it yet. Run the study first"
    if "not a database" in text or "malformed" in text:
        return "The file is not an SQLite database. Name another storage"
    if "locked" in text:
        return "The database stayed locked by another program. End that program, then start again"
    first_line = text.splitlines()[0] if text else type(error).__name__
    if _UNREACHABLE.search(text):
        return (
            f"The database server did not answer: {first_line}. Start it, or correct its host and "
            "port in storage"
        )
    return f"The database could not be used: {first_line}"
