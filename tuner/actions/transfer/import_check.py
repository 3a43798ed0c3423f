"""Checks that a study in another program's database is complete before an import.

The database may be of an old Optuna, truncated or edited manually: `optuna storage upgrade` changes
tables, and does not check their content.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from optuna.distributions import json_to_distribution
from optuna.study import StudyDirection
from optuna.trial import TrialState

from tuner.errors import StoreError
from tuner.store.optuna_tables.statements import (
    CURVES,
    DIRECTIONS,
    PARAMS,
    STUDIES,
    STUDY_ATTRS,
    STUDY_SYSTEM_ATTRS,
    SYSTEM_ATTRS,
    TRIALS,
    USER_ATTRS,
    VALUES,
    ids_of,
    models,
)

#: Without `trial_heartbeats`, which Optuna creates when it opens a database, but not when it
#: upgrades one. It is not imported.
_NEEDED = (
    STUDIES,
    DIRECTIONS,
    STUDY_ATTRS,
    STUDY_SYSTEM_ATTRS,
    TRIALS,
    PARAMS,
    VALUES,
    CURVES,
    USER_ATTRS,
    SYSTEM_ATTRS,
)
_BATCH = 2000


def check_tables(connection: sa.Connection, shown: str) -> None:
    """Checks for Optuna's tables.

    Args:
        connection: Connection to the database of an import.
        shown: Its name for messages.

    Raises:
        StoreError: If it lacks tables in which Optuna keeps studies.
    """
    present = set(sa.inspect(connection).get_table_names())
    missing = [table.name for table in _NEEDED if table.name not in present]
    if missing:
        raise StoreError(
            f"{shown} lacks {_counted(len(missing), 'table')} in which Optuna keeps studies: "
            f"{', '.join(missing)}. Nothing was imported. Upgrade a copy of the original database: "
            "`$ optuna storage upgrade --storage $STORAGE_URL`."
        )


def check_is_whole(connection: sa.Connection, study_id: int, name: str, shown: str) -> None:
    """Checks a study's rows.

    Args:
        connection: Connection to a database with all of Optuna's tables.
        study_id: Id of the study to import.
        name: Its name.
        shown: The database's name for messages.

    Raises:
        StoreError: If rows are missing without which the study cannot be read, with their kinds and
            numbers.
    """
    lacks = list(_lacks(connection, study_id))
    if lacks:
        listed = "".join(f"\n  - {lack}" for lack in lacks)
        raise StoreError(
            f"Study {name!r} of {shown} is not whole:{listed}\n"
            "Nothing was imported. Complete these rows in a copy of the database, or delete the "
            "trials there that have them, and import the copy."
        )


def _lacks(connection: sa.Connection, study_id: int) -> Iterator[str]:
    yield from _lacks_of_directions(connection, study_id)
    yield from _lacks_of_trials(connection, study_id)
    yield from _lacks_of_cells(connection, study_id)


def _lacks_of_directions(connection: sa.Connection, study_id: int) -> Iterator[str]:
    query = sa.select(DIRECTIONS.c.direction).where(DIRECTIONS.c.study_id == study_id)
    directions = list(connection.execute(query).scalars())
    if not directions:
        yield "it has no direction (no row in study_directions)"
    if n := directions.count(StudyDirection.NOT_SET):
        yield (
            f"{_counted(n, 'direction')} of {len(directions)} NOT_SET (study_directions.direction "
            "must be MINIMIZE or MAXIMIZE)"
        )


def _lacks_of_trials(connection: sa.Connection, study_id: int) -> Iterator[str]:
    of_study = TRIALS.c.study_id == study_id
    if n := _count(connection, TRIALS, of_study & TRIALS.c.number.is_(None)):
        yield f"{_counted(n, 'trial')} without a number (trials.number)"
    numbers = sa.select(TRIALS.c.number).where(of_study & TRIALS.c.number.is_not(None))
    twice = numbers.group_by(TRIALS.c.number).having(sa.func.count() > 1).subquery()
    if n := connection.execute(sa.select(sa.func.count()).select_from(twice)).scalar_one():
        yield f"{_counted(n, 'number')} (trials.number) that several trials have"
    n_values = _n_rows(VALUES, VALUES.c.trial_id == TRIALS.c.trial_id)
    n_directions = _n_rows(DIRECTIONS, DIRECTIONS.c.study_id == study_id)
    is_short = (TRIALS.c.state == TrialState.COMPLETE) & (n_values < n_directions)
    if n := _count(connection, TRIALS, of_study & is_short):
        yield f"{_counted(n, 'complete trial')} without a value for each direction (trial_values)"


def _lacks_of_cells(connection: sa.Connection, study_id: int) -> Iterator[str]:
    trials = ids_of(study_id)
    values, curves = models.TrialValueModel.TrialValueType, models.TrialIntermediateValueModel
    finite = curves.TrialIntermediateValueType.FINITE
    for what, column, is_needed in (
        ("parameter", PARAMS.c.param_value, sa.true()),
        ("value", VALUES.c.value, VALUES.c.value_type == values.FINITE),
        ("report", CURVES.c.intermediate_value, CURVES.c.intermediate_value_type == finite),
    ):
        is_empty = column.table.c.trial_id.in_(trials) & column.is_(None) & is_needed
        if n := _count(connection, column.table, is_empty):
            yield f"{_counted(n, what)} without a number ({column})"
    # Most trials have the same.
    read_distribution = lru_cache(json_to_distribution)
    for what, column, owner, parse in (
        ("parameter", PARAMS.c.distribution_json, PARAMS.c.trial_id, read_distribution),
        ("attribute", USER_ATTRS.c.value_json, USER_ATTRS.c.trial_id, json.loads),
        ("attribute", SYSTEM_ATTRS.c.value_json, SYSTEM_ATTRS.c.trial_id, json.loads),
        ("attribute", STUDY_ATTRS.c.value_json, STUDY_ATTRS.c.study_id, json.loads),
        ("attribute", STUDY_SYSTEM_ATTRS.c.value_json, STUDY_SYSTEM_ATTRS.c.study_id, json.loads),
    ):
        ids = trials if owner.name == "trial_id" else sa.select(sa.literal(study_id))
        if n := _n_unreadable(connection, column, owner.in_(ids), parse):
            yield f"{_counted(n, what)} whose JSON is missing or cannot be read ({column})"


def _n_unreadable(
    connection: sa.Connection,
    column: sa.Column[Any],
    condition: sa.ColumnElement[bool],
    parse: Callable[[str], object],
) -> int:
    # Not all at once: attributes can be large.
    options = {"yield_per": _BATCH}
    found = connection.execute(sa.select(column).where(condition), execution_options=options)
    return sum(not _can_parse(text, parse) for text in found.scalars())


def _can_parse(text: str | None, parse: Callable[[str], object]) -> bool:
    try:
        parse(text or "")
    except (ValueError, TypeError, KeyError, AttributeError):
        return False
    return True


def _n_rows(table: sa.Table, condition: sa.ColumnElement[bool]) -> sa.ScalarSelect[int]:
    count = sa.select(sa.func.count()).select_from(table).where(condition)
    return count.correlate(TRIALS).scalar_subquery()


def _count(connection: sa.Connection, table: Any, condition: sa.ColumnElement[bool]) -> int:
    query = sa.select(sa.func.count()).select_from(table).where(condition)
    return int(connection.execute(query).scalar_one())


def _counted(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"
