"""What is wrong with an SQLite file whose rows cannot be read as what they should be.

Asked only after an error: it reads the whole file.
"""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa
from sqlalchemy import exc

from tuner.config.storage_url import masked_url
from tuner.store.connection.engine import open_engine
from tuner.store.optuna_tables.statements import models
from tuner.store.schema.models import TunerBase

#: What SQLite says of the types of cells that a column may have.
_NUMBERS = ("integer", "real", "null")
_TEXTS = ("text", "null")


#: URLs of the SQLite files that this process has opened in order to look.
_looked_at: list[str] = []


def note_look(url: str) -> None:
    """Notes that what is read from now on comes from this database."""
    _looked_at.append(url)


def damage_told() -> str:
    """After an error: what is wrong with a database that was looked at; empty for nothing."""
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
    """The first thing that is wrong, for people; empty where nothing was found."""
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
    tables = {**models.BaseModel.metadata.tables, **TunerBase.metadata.tables}
    for name, table in tables.items():
        if name not in kinds:
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
        case sa.Numeric() | sa.Integer():
            is_wrong = of_type.not_in(_NUMBERS)
        case sa.JSON() | sa.TypeDecorator(impl=sa.JSON()):
            is_wrong = cell.is_not(None) & (sa.func.json_valid(cell) == 0)
        case sa.DateTime():
            is_wrong = cell.is_not(None) & sa.func.julianday(cell).is_(None)
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
