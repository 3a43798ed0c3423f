"""Upgrades a database of an older tuner. Alembic does it, and is imported only here.

PostgreSQL and SQLite apply a migration completely or not at all. MySQL cannot roll back changes of
tables. An SQLite file is copied first.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

import sqlalchemy as sa

from tuner.errors import EXIT_BAD_INPUT, StoreError
from tuner.host.process_identity import ProcessIdentity
from tuner.store.connection.database import check_file, parse_url, shown_url, store_errors
from tuner.store.connection.engine import open_engine, without_idle_limit
from tuner.store.connection.filesystem import path_of
from tuner.store.records.dispatchers.silence import watch_silent
from tuner.store.records.dispatchers.starts import OpenDispatcher, open_dispatchers, refuse_living
from tuner.store.schema import migrations
from tuner.store.schema.models import SCHEMA_REVISION
from tuner.store.schema.revision import check_not_newer, stored_revision

#: Seconds; a reader that never ends must not block the migration and all that follows.
_LOCK_TIMEOUT_S = 30
_IS_USED = (
    "A study of this database is being run now, on {place}. Wait for it, or end it with Ctrl-C, "
    "then upgrade."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """The result of an upgrade. Nothing was done if `before` is None or the current revision."""

    #: None if the database had none of the tuner's tables.
    before: str | None
    #: The copy of an SQLite file as it was.
    backup: Path | None = None


def upgrade_database(
    url: str, *, here: ProcessIdentity | None, say: Callable[[str], None] = print
) -> Upgrade:
    """Upgrades a database.

    Args:
        url: Any SQLAlchemy URL.
        here: This process; None for a copy without dispatchers.
        say: Shows that a dispatcher is watched for a minute.

    Raises:
        StoreError: If a dispatcher works on it now, or it is newer, missing or unreachable.
    """
    parsed = parse_url(url)
    check_file(parsed, must_exist=True)
    with store_errors(url, exit_code=EXIT_BAD_INPUT):
        engine = open_engine(parsed)
        try:
            silent = watch_silent(partial(_look, engine), here, say) if here else frozenset()
            with _changing(engine) as connection:
                before = stored_revision(connection)
                check_not_newer(before, shown_url(url))
                if before in (None, SCHEMA_REVISION):
                    return Upgrade(before=before)
                if here is not None:
                    refuse_living(connection, here, silent, _IS_USED)
                backup = _back_up(path_of(parsed), before)
                migrate(connection)
        finally:
            engine.dispose()
    return Upgrade(before=before, backup=backup)


def migrate(connection: sa.Connection, to: str = "head") -> None:
    """Carries out the revisions that the database lacks, in the caller's transaction."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    # The parser of the configuration reads a % as its own.
    folder = str(Path(migrations.__file__).parent).replace("%", "%%")
    config.set_main_option("script_location", folder)
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, to)


@contextmanager
def _changing(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A transaction in which tables may change and no other process writes."""
    with engine.connect() as connection:
        match engine.dialect.name:
            case "sqlite":
                # Else the copy of a table would take the rows with it that point to the first.
                connection.exec_driver_sql("PRAGMA foreign_keys=OFF")
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            case "postgresql":
                connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT_S}s'")
                without_idle_limit(connection)
                _lock_out_dispatchers(connection)
            case _:
                connection.exec_driver_sql(f"SET SESSION lock_wait_timeout = {_LOCK_TIMEOUT_S}")
        yield connection
        connection.commit()


def _lock_out_dispatchers(connection: sa.Connection) -> None:
    if stored_revision(connection) is not None:
        connection.exec_driver_sql("LOCK TABLE tuner_dispatchers IN SHARE ROW EXCLUSIVE MODE")


def _look(engine: sa.Engine) -> list[OpenDispatcher]:
    with engine.connect() as connection:
        if stored_revision(connection) in (None, SCHEMA_REVISION):
            return []  # There is nothing to upgrade.
        return open_dispatchers(connection, study_id=None)


def _back_up(path: Path | None, revision: str | None) -> Path | None:
    if path is None:
        return None
    names = (f"{path.name}.bak-{revision}{f'-{n}' if n else ''}" for n in count())
    backup = next(path.with_name(name) for name in names if not path.with_name(name).exists())
    unfinished = backup.with_name(f"{backup.name}.part")
    try:
        with (
            closing(sqlite3.connect(path)) as source,
            closing(sqlite3.connect(unfinished)) as target,
        ):
            source.backup(target)
        unfinished.rename(backup)
    except (OSError, sqlite3.Error) as error:
        unfinished.unlink(missing_ok=True)
        raise StoreError(
            f"The backup {backup} could not be written: {error}. Make room and let your user write "
            "in that folder. The database is as it was."
        ) from error
    return backup
