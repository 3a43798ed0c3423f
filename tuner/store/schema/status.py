"""The content of a database, of any revision; never writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import sqlalchemy as sa

from tuner.errors import EXIT_BAD_INPUT
from tuner.store.connection.database import check_file, parse_url, shown_url, store_errors
from tuner.store.connection.engine import open_engine
from tuner.store.connection.filesystem import path_of
from tuner.store.optuna_tables.statements import models
from tuner.store.schema.revision import optuna_revision, stored_revision

_NAMES = {"sqlite": "SQLite", "postgresql": "PostgreSQL", "mysql": "MySQL"}
_SIZES = {
    "postgresql": "SELECT pg_database_size(current_database())",
    "mysql": "SELECT sum(data_length + index_length) FROM information_schema.tables "
    "WHERE table_schema = database()",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseStatus:
    """The state of a database."""

    #: With its password hidden.
    url: str
    #: Name and version, such as `PostgreSQL 15.18`.
    server: str
    #: Revision of the tuner's tables; None if there are none.
    revision: str | None
    #: Revision of Optuna's tables; None if there are none.
    optuna_revision: str | None
    size_bytes: int
    #: By table.
    rows: Mapping[str, int]


def database_status(url: str) -> DatabaseStatus:
    """The status of a database.

    Raises:
        StoreError: If the database is missing or unreachable.
    """
    parsed = parse_url(url)
    check_file(parsed, must_exist=True)
    with store_errors(url, exit_code=EXIT_BAD_INPUT):
        engine = open_engine(parsed, read_only=True)
        try:
            with engine.connect() as connection:
                return _status(connection, shown_url(url))
        finally:
            engine.dispose()


def _status(connection: sa.Connection, url: str) -> DatabaseStatus:
    present = sa.inspect(connection).get_table_names()
    optunas = [
        table.name for table in models.BaseModel.metadata.sorted_tables if table.name in present
    ]
    ours = [name for name in sorted(present) if name.startswith("tuner_")]
    return DatabaseStatus(
        url=url,
        server=_server(connection.dialect),
        revision=stored_revision(connection),
        optuna_revision=optuna_revision(connection),
        size_bytes=_size(connection),
        rows={name: _n_rows(connection, name) for name in (*optunas, *ours)},
    )


def _server(dialect: sa.Dialect) -> str:
    name = "MariaDB" if getattr(dialect, "is_mariadb", False) else _NAMES.get(dialect.name)
    version = getattr(dialect, "server_version_info", None) or ()
    numbers = ".".join(str(part) for part in version if isinstance(part, int))
    return f"{name or dialect.name} {numbers}".strip()


def _n_rows(connection: sa.Connection, table: str) -> int:
    query = sa.select(sa.func.count()).select_from(sa.table(table))
    return connection.execute(query).scalar_one()


def _size(connection: sa.Connection) -> int:
    if query := _SIZES.get(connection.dialect.name):
        return int(connection.execute(sa.text(query)).scalar() or 0)
    path = path_of(connection.engine.url)
    if path is None:
        return 0
    files = [path, path.with_name(f"{path.name}-wal")]
    return sum(file.stat().st_size for file in files if file.exists())
