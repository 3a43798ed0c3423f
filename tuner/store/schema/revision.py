"""The tuner's tables in a database: their revision and creation.

A new database gets them at once, by SQLAlchemy. One of an older version is upgraded by
`tuner.store.schema.upgrade`. A contract test shows that both ways create the same tables.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import sqlalchemy as sa

from tuner.errors import StoreError
from tuner.store.connection.engine import without_idle_limit
from tuner.store.connection.filesystem import path_of
from tuner.store.schema.models import SCHEMA_REVISION, VERSION_TABLE, TunerBase

# As Alembic has it, which takes a tenth of a second to import.
_VERSIONS = sa.Table(
    VERSION_TABLE,
    sa.MetaData(),
    sa.Column("version_num", sa.String(32), nullable=False),
    sa.PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
)
#: Revision of the installed Optuna's tables; a contract test compares the two. If the stored one is
#: equal, Optuna, which would import Alembic, need not be called.
OPTUNA_REVISION = "v3.2.0.a"
_OPTUNA_VERSIONS = sa.Table(
    "alembic_version",
    sa.MetaData(),
    sa.Column("version_num", sa.String(32), nullable=False),
    sa.PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
_FIRST_ROW = {
    name: sa.select(sa.literal(1)).select_from(sa.table(name)).limit(1)
    for name in ("version_info", "studies")
}
_LOCK_POLL_S = 0.02
#: Number of a PostgreSQL advisory lock; any number that no other process uses.
_LOCK_NUMBER = 7_364_020_951
_LOCK_TIMEOUT_S = 60


def stored_revision(connection: sa.Connection) -> str | None:
    """The stored revision; None if the database has none of the tuner's tables."""
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.execute(sa.select(_VERSIONS.c.version_num)).scalar()


def optuna_revision(connection: sa.Connection) -> str | None:
    """Revision of Optuna's tables; None if the database has none."""
    if not sa.inspect(connection).has_table(_OPTUNA_VERSIONS.name):
        return None
    return connection.execute(sa.select(_OPTUNA_VERSIONS.c.version_num)).scalar()


def check_revision(found: str | None, url: sa.URL, shown_url: str) -> None:
    """Checks the revision.

    Raises:
        StoreError: If the tables are of a newer or an older tuner.
    """
    check_not_newer(found, shown_url)
    if found is None or found == SCHEMA_REVISION:
        return
    # The URL of a server is not repeated: its password is not shown, and the command needs it.
    source = shlex.quote(shown_url) if url.get_backend_name() == "sqlite" else "study.yaml"
    raise StoreError(
        f"The database {shown_url} was written by an older tuner (schema {found}; this one needs "
        f"{SCHEMA_REVISION}). Nothing is lost. Bring it up to date: tuner db upgrade {source} "
        "(takes a study file or a database URL)."
    )


def check_not_newer(found: str | None, shown_url: str) -> None:
    """Checks that the revision is not newer.

    Raises:
        StoreError: If the tables are of a newer tuner.
    """
    if found is not None and found > SCHEMA_REVISION:
        raise StoreError(
            f"The database {shown_url} was written by a newer tuner (schema {found}; this one "
            f"knows {SCHEMA_REVISION}). Upgrade with `pip install -U gpu-tuner`, or name another "
            "storage."
        )


def has_optunas_tables(connection: sa.Connection) -> bool:
    """Whether Optuna, of whichever version, has been here."""
    return sa.inspect(connection).has_table("studies")


def is_half_made(connection: sa.Connection) -> bool:
    """Whether the creation of Optuna's tables was interrupted: there is no version, and no study.

    MySQL has no transaction around the creation of tables.
    """
    has_table = sa.inspect(connection).has_table
    return not any(
        has_table(name) and connection.execute(_FIRST_ROW[name]).first()
        for name in ("version_info", "studies")
    )


def make_optunas_tables(connection: sa.Connection) -> None:
    """Creates Optuna's tables in a database that has none.

    It uses Optuna's models without Alembic, which takes a third of the start time to import and to
    read Optuna's migrations. A contract test compares the result with Optuna's.
    """
    from optuna import __version__

    from tuner.store.optuna_tables.statements import models

    models.BaseModel.metadata.create_all(connection)
    info = {"schema_version": models.SCHEMA_VERSION, "library_version": __version__}
    connection.execute(sa.insert(models.VersionInfoModel.__table__), info)
    _OPTUNA_VERSIONS.create(connection)
    connection.execute(sa.insert(_OPTUNA_VERSIONS).values(version_num=OPTUNA_REVISION))


def make_tables(connection: sa.Connection) -> None:
    """Makes the tuner's tables, unless they are there. Optuna's have to be."""
    if stored_revision(connection) is not None:
        return
    metadata_with_optuna().create_all(connection)
    _VERSIONS.create(connection, checkfirst=True)
    connection.execute(sa.insert(_VERSIONS).values(version_num=SCHEMA_REVISION))


def metadata_with_optuna() -> sa.MetaData:
    """The tuner's metadata with Optuna's tables, so that foreign keys find their targets."""
    from tuner.store.optuna_tables.statements import models as optuna_models

    metadata = TunerBase.metadata
    for name in ("studies", "trials"):
        if name not in metadata.tables:
            optuna_models.BaseModel.metadata.tables[name].to_metadata(metadata)
    return metadata


def alone(engine: sa.Engine) -> AbstractContextManager[None]:
    """Keeps others from making tables in the same database at the same time.

    Raises:
        StoreError: If the database would not hold every text.
    """
    match engine.dialect.name:
        case "sqlite":
            return _alone_on_sqlite(engine)
        case "postgresql":
            return _alone_on_postgresql(engine)
        case _:
            return _alone_on_mysql(engine)


@contextmanager
def _alone_on_sqlite(engine: sa.Engine) -> Iterator[None]:
    path = path_of(engine.url)
    if path is None or not path.parent.exists():
        yield  # In memory; or the database's own words tell it better.
        return
    # Not a transaction: Optuna makes its tables over a connection of its own.
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


@contextmanager
def _alone_on_postgresql(engine: sa.Engine) -> Iterator[None]:
    with engine.connect() as connection:
        # Not by waiting for it in the database: those who wait could then hold all connections of
        # PgBouncer to the server, of which the holder needs another one.
        while not _has_lock(connection):
            connection.rollback()
            time.sleep(_LOCK_POLL_S)
        # What the holder does with other connections takes longer than a statement.
        without_idle_limit(connection)
        yield


def _has_lock(connection: sa.Connection) -> bool:
    lock = sa.select(sa.func.pg_try_advisory_xact_lock(_LOCK_NUMBER))
    return bool(connection.execute(lock).scalar_one())


@contextmanager
def _alone_on_mysql(engine: sa.Engine) -> Iterator[None]:
    # Locks are the server's, and their names are cut at 64 characters.
    name = f"{engine.url.database} tuner"[-64:]
    with engine.connect() as connection:
        _check_characters(connection)
        connection.execute(sa.select(sa.func.get_lock(name, _LOCK_TIMEOUT_S)))
        try:
            yield
        finally:
            connection.execute(sa.select(sa.func.release_lock(name)))


def _check_characters(connection: sa.Connection) -> None:
    name, characters = connection.execute(
        sa.text("SELECT database(), @@character_set_database")
    ).one()
    if characters != "utf8mb4" and not sa.inspect(connection).has_table("studies"):
        raise StoreError(
            f"The database {name!r} holds only the characters of {characters}; names and messages "
            f"need utf8mb4. Change it: ALTER DATABASE `{name}` CHARACTER SET utf8mb4"
        )
