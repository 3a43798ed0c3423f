"""What Optuna's tables hold of one study: its name, directions and attributes.

Optuna's own storage would do the same, but imports Alembic first, which takes as long as a third of
a start.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from optuna.study import StudyDirection

from tuner.store.optuna_tables.statements import (
    DIRECTIONS,
    STUDIES,
    STUDY_ATTRS,
    STUDY_SYSTEM_ATTRS,
    known,
)
from tuner.store.optuna_tables.writes import lock_study
from tuner.store.schema.statements import insert_row


def make_study(connection: sa.Connection, name: str, directions: Sequence[StudyDirection]) -> int:
    """Gives its id.

    Raises:
        sqlalchemy.exc.IntegrityError: If there is one of that name.
    """
    study_id = insert_row(connection, sa.insert(STUDIES), {"study_name": name})
    rows = [
        {"study_id": study_id, "objective": objective, "direction": direction}
        for objective, direction in enumerate(directions)
    ]
    connection.execute(sa.insert(DIRECTIONS), rows)
    return study_id


def id_of(connection: sa.Connection, name: str) -> int:
    """The id of a study.

    Raises:
        KeyError: If there is no such study.
    """
    query = sa.select(STUDIES.c.study_id).where(STUDIES.c.study_name == name)
    return int(known(connection, query, f"No study named {name!r} exists."))


def name_of(connection: sa.Connection, study_id: int) -> str:
    """The name of a study.

    Raises:
        KeyError: If there is no such study.
    """
    query = sa.select(STUDIES.c.study_name).where(STUDIES.c.study_id == study_id)
    return str(known(connection, query, f"No study with study_id {study_id} exists."))


def directions_of(connection: sa.Connection, study_id: int) -> list[StudyDirection]:
    """By objective.

    Raises:
        KeyError: If there is no such study.
    """
    name_of(connection, study_id)
    query = (
        sa.select(DIRECTIONS.c.direction)
        .where(DIRECTIONS.c.study_id == study_id)
        .order_by(DIRECTIONS.c.objective)
    )
    return list(connection.execute(query).scalars())


def user_attrs_of(connection: sa.Connection, study_id: int) -> dict[str, Any]:
    """The user attributes of a study.

    Raises:
        KeyError: If there is no such study.
    """
    return _attrs(connection, STUDY_ATTRS, study_id)


def system_attrs_of(connection: sa.Connection, study_id: int) -> dict[str, Any]:
    """The system attributes of a study.

    Raises:
        KeyError: If there is no such study.
    """
    return _attrs(connection, STUDY_SYSTEM_ATTRS, study_id)


def set_user_attr(connection: sa.Connection, study_id: int, key: str, value: Any) -> None:
    """Sets a user attribute of a study.

    Raises:
        KeyError: If there is no such study.
    """
    _set_attr(connection, STUDY_ATTRS, study_id, key, value)


def set_system_attr(connection: sa.Connection, study_id: int, key: str, value: Any) -> None:
    """Sets a system attribute of a study.

    Raises:
        KeyError: If there is no such study.
    """
    _set_attr(connection, STUDY_SYSTEM_ATTRS, study_id, key, value)


def begin_alone(connection: sa.Connection, study_id: int) -> None:
    """Begins a transaction in which no other process adds a trial to a study."""
    if connection.dialect.name == "sqlite":
        # Else the first look would be a transaction of its own.
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    else:
        lock_study(connection, study_id)


def count_up(connection: sa.Connection, study_id: int, key: str) -> int:
    """The next number of a sequence, from 0, in a transaction of its own.

    Raises:
        KeyError: If there is no such study.
    """
    begin_alone(connection, study_id)
    number = int(system_attrs_of(connection, study_id).get(key, -1)) + 1
    set_system_attr(connection, study_id, key, number)
    return number


def _set_attr(
    connection: sa.Connection, table: sa.Table, study_id: int, key: str, value: Any
) -> None:
    name_of(connection, study_id)
    is_it = (table.c.study_id == study_id, table.c.key == key)
    row = {"study_id": study_id, "key": key, "value_json": json.dumps(value)}
    if connection.execute(sa.select(table.c.key).where(*is_it)).first() is None:
        try:
            with connection.begin_nested():
                connection.execute(sa.insert(table), row)
            return
        except sa.exc.IntegrityError:
            pass  # Another dispatcher has set it in this moment.
    connection.execute(sa.update(table).where(*is_it).values(value_json=row["value_json"]))


def _attrs(connection: sa.Connection, table: sa.Table, study_id: int) -> dict[str, Any]:
    name_of(connection, study_id)
    query = sa.select(table.c.key, table.c.value_json).where(table.c.study_id == study_id)
    return {key: json.loads(text) for key, text in connection.execute(query)}
