"""Diagnoses damage in an SQLite file whose rows cannot be read as expected.

Called only after an error: it reads the whole file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from tuner.config.storage_url import masked_url
from tuner.store.connection.engine import open_engine
from tuner.store.optuna_tables.statements import (
    DIRECTIONS,
    IDENTITY_ATTR,
    METRIC_NAMES_ATTR,
    OBJECTIVES_ATTR,
    PARAMS,
    SPACE_ATTR,
    STUDIES,
    STUDY_ATTRS,
    STUDY_SYSTEM_ATTRS,
    models,
)
from tuner.store.schema.models import SCHEMA_REVISION, DispatcherRow, TunerBase, table_of
from tuner.store.schema.revision import stored_revision

#: SQLite's names for the cell types that a column may have.
_NUMBERS = ("integer", "real", "null")
_TEXTS = ("text", "null")
_WITHOUT_DIRECTION = sa.select(sa.literal(1)).where(
    STUDIES.c.study_id.not_in(sa.select(DIRECTIONS.c.study_id))
)


_STARTS = table_of(DispatcherRow)
#: The `json_type` that JSON must have: column, type and the rows concerned.
_SHAPES: tuple[tuple[sa.Column[Any], str, sa.ColumnElement[bool]], ...] = (
    (STUDY_ATTRS.c.value_json, "text", STUDY_ATTRS.c.key == SPACE_ATTR),
    (STUDY_ATTRS.c.value_json, "array", STUDY_ATTRS.c.key == OBJECTIVES_ATTR),
    (STUDY_ATTRS.c.value_json, "object", STUDY_ATTRS.c.key == IDENTITY_ATTR),
    (STUDY_SYSTEM_ATTRS.c.value_json, "array", STUDY_SYSTEM_ATTRS.c.key == METRIC_NAMES_ATTR),
    (PARAMS.c.distribution_json, "object", sa.true()),
    (_STARTS.c.versions, "object", sa.true()),
    (_STARTS.c.devices, "array", _STARTS.c.devices.is_not(None)),
)

#: URLs of the SQLite files that the command has opened in order to look, the newest last.
_looked_at: dict[str, None] = {}


def note_look(url: str) -> None:
    """Records that following reads come from this database."""
    _looked_at.pop(url, None)
    _looked_at[url] = None


def forget_looks() -> None:
    """Forgets the databases that an earlier command of this process read."""
    _looked_at.clear()


def damage_told() -> str:
    """After an error: damage in a database that was read; empty if there is none."""
    for url in reversed(_looked_at):
        try:
            engine = open_engine(sa.make_url(url), read_only=True)
            with engine.connect() as connection:
                damage = find_damage(connection)
        except exc.SQLAlchemyError as error:
            damage = f"it cannot be read ({type(error).__name__})"
        if damage:
            return (
                f"The database {masked_url(url)} is damaged, or was changed by another program: "
                f"{damage}. Restore it from a backup."
            )
    return ""


def find_damage(connection: sa.Connection) -> str:
    """The first damage found, as text; empty if there is none."""
    if connection.dialect.name != "sqlite":
        return ""
    try:
        return next(_damages(connection), "")
    except exc.DBAPIError as error:
        return f"it cannot be read as a whole ({error.orig})"


def _damages(connection: sa.Connection) -> Iterator[str]:
    kinds: dict[str, str] = {}
    for row in connection.exec_driver_sql("SELECT name, type FROM sqlite_master"):
        kinds[str(row[0])] = str(row[1])
    optunas, ours = models.BaseModel.metadata.tables, TunerBase.metadata.tables
    tables = {**optunas, **ours}
    # A database of Optuna alone has none of ours, and an older one lacks some.
    expected = {*optunas, *(ours if stored_revision(connection) == SCHEMA_REVISION else ())}
    for name, table in tables.items():
        if name not in kinds:
            if name in expected:
                yield f"it has no table {name}"
            continue
        if kinds[name] != "table":
            yield f"{name} is a {kinds[name]}, and should be a table"
            continue
        present = {column["name"] for column in sa.inspect(connection).get_columns(name)}
        for column in table.columns:
            if column.name not in present:
                yield f"the table {name} has no column {column.name}"
            else:
                yield from _wrong_cells(connection, name, column)
    yield from _wrong_shapes(connection, kinds)
    if _has_rows(connection, _WITHOUT_DIRECTION):
        yield "a study has no direction"
    (checked,) = connection.exec_driver_sql("PRAGMA quick_check(1)").one()
    if checked != "ok":
        yield str(checked)


def _wrong_cells(connection: sa.Connection, table: str, column: sa.Column[object]) -> Iterator[str]:
    cell: sa.ColumnElement[object] = sa.column(column.name)
    of_type = sa.func.typeof(cell)
    is_wrong: sa.ColumnElement[bool]
    match column.type:
        case sa.Enum() as enum:
            is_wrong = cell.is_not(None) & cell.not_in(enum.enums)
        case sa.Numeric() | sa.Float() | sa.Integer():
            is_wrong = of_type.not_in(_NUMBERS)
        case sa.JSON() | sa.TypeDecorator(impl=sa.JSON()):
            is_wrong = cell.is_not(None) & (sa.func.json_valid(cell) == 0)
        case sa.DateTime():
            is_wrong = cell.is_not(None) & sa.func.julianday(cell).is_(None)
        case sa.Text() if column.name.endswith("_json"):  # Optuna's
            is_wrong = cell.is_not(None) & (sa.func.json_valid(cell) == 0)
        case sa.String() | sa.TypeDecorator():
            is_wrong = of_type.not_in(_TEXTS)
        case _:
            return
    if not column.nullable:
        is_wrong = is_wrong | cell.is_(None)
    n_wrong = connection.execute(
        sa.select(sa.func.count()).select_from(sa.table(table)).where(is_wrong)
    ).scalar_one()
    if n_wrong:
        yield f"the table {table} has {n_wrong:,} cells of a wrong kind in column {column.name}"


def _wrong_shapes(connection: sa.Connection, present: Collection[str]) -> Iterator[str]:
    for column, kind, is_meant in _SHAPES:
        query = sa.select(sa.literal(1)).where(is_meant, sa.func.json_type(column) != kind)
        if column.table.name in present and _has_rows(connection, query):
            yield (
                f"the table {column.table.name} has JSON in column {column.name} that is of a "
                f"wrong type, and should be of the type {kind}"
            )


def _has_rows(connection: sa.Connection, query: sa.Select[int]) -> bool:
    return connection.execute(query.limit(1)).first() is not None
