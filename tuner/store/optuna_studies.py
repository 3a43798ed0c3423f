"""Reads what Optuna's tables hold of one study: its name, directions and attributes."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from optuna.storages._rdb import models
from optuna.study import StudyDirection

_STUDIES = models.StudyModel.__table__
_DIRECTIONS = models.StudyDirectionModel.__table__
_USER_ATTRS = models.StudyUserAttributeModel.__table__
_SYSTEM_ATTRS = models.StudySystemAttributeModel.__table__


def id_of(connection: sa.Connection, name: str) -> int:
    """
    Raises:
        KeyError: If there is no such study.
    """
    query = sa.select(_STUDIES.c.study_id).where(_STUDIES.c.study_name == name)
    study_id = connection.execute(query).scalar()
    if study_id is None:
        raise KeyError(f"No study named {name!r} exists.")
    return int(study_id)


def name_of(connection: sa.Connection, study_id: int) -> str:
    """
    Raises:
        KeyError: If there is no such study.
    """
    query = sa.select(_STUDIES.c.study_name).where(_STUDIES.c.study_id == study_id)
    name = connection.execute(query).scalar()
    if name is None:
        raise KeyError(f"No study with study_id {study_id} exists.")
    return str(name)


def directions_of(connection: sa.Connection, study_id: int) -> list[StudyDirection]:
    """By objective.

    Raises:
        KeyError: If there is no such study.
    """
    name_of(connection, study_id)
    query = (
        sa.select(_DIRECTIONS.c.direction)
        .where(_DIRECTIONS.c.study_id == study_id)
        .order_by(_DIRECTIONS.c.objective)
    )
    return list(connection.execute(query).scalars())


def user_attrs_of(connection: sa.Connection, study_id: int) -> dict[str, Any]:
    """
    Raises:
        KeyError: If there is no such study.
    """
    return _attrs(connection, _USER_ATTRS, study_id)


def system_attrs_of(connection: sa.Connection, study_id: int) -> dict[str, Any]:
    """
    Raises:
        KeyError: If there is no such study.
    """
    return _attrs(connection, _SYSTEM_ATTRS, study_id)


def _attrs(connection: sa.Connection, table: sa.Table, study_id: int) -> dict[str, Any]:
    name_of(connection, study_id)
    query = sa.select(table.c.key, table.c.value_json).where(table.c.study_id == study_id)
    return {key: json.loads(text) for key, text in connection.execute(query)}
