"""Which trials break a constraint: no result of theirs is a best one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection

import sqlalchemy as sa
from optuna.trial import TrialState

from tuner.store.optuna_tables.statements import (
    CONSTRAINTS_ATTR,
    OUR_CONSTRAINTS,
    SYSTEM_ATTRS,
    TRIALS,
    ids_of,
)

_IS_OUR_CONSTRAINT = SYSTEM_ATTRS.c.key.like(f"{CONSTRAINTS_ATTR}:{OUR_CONSTRAINTS}%")
FAILED_AS_PRUNED = sa.and_(
    TRIALS.c.state == TrialState.PRUNED,
    TRIALS.c.trial_id.in_(sa.select(SYSTEM_ATTRS.c.trial_id).where(_IS_OUR_CONSTRAINT)),
)
"""Trials that failed and are stored as pruned, so that samplers avoid them.

They ran out of memory or reported NaN (`tuner.search.study.StudySearch.mark_infeasible`).
"""


def infeasible_trials(
    connection: sa.Connection,
    study_id: int | None = None,
    trial_ids: Collection[int] | None = None,
) -> set[int]:
    """Ids of the trials with a constraint above 0, of one study or of all, or of some trials.

    The tuner's own constraints, which keep samplers away from trials that ran out of memory or
    reported NaN, do not count: such trials have no value.
    """
    key = SYSTEM_ATTRS.c.key
    query = sa.select(SYSTEM_ATTRS.c.trial_id, SYSTEM_ATTRS.c.value_json).where(
        is_constraint(key), ~_IS_OUR_CONSTRAINT
    )
    if trial_ids is not None:
        query = query.where(SYSTEM_ATTRS.c.trial_id.in_(trial_ids))
    elif study_id is not None:
        query = query.where(SYSTEM_ATTRS.c.trial_id.in_(ids_of(study_id)))
    return {row.trial_id for row in connection.execute(query) if _is_broken(row.value_json)}


def count_failed_as_pruned(connection: sa.Connection) -> Counter[int]:
    """Numbers of `FAILED_AS_PRUNED` by study id."""
    query = sa.select(TRIALS.c.study_id, sa.func.count().label("n")).where(FAILED_AS_PRUNED)
    rows = connection.execute(query.group_by(TRIALS.c.study_id))
    return Counter({row.study_id: row.n for row in rows})


def is_constraint(key: sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
    return sa.or_(key == CONSTRAINTS_ATTR, key.like(f"{CONSTRAINTS_ATTR}:%"))


def without(column: sa.ColumnElement[int], trial_ids: set[int]) -> sa.ColumnElement[bool]:
    """A condition that may name more trials than a statement can have parameters."""
    listed = sorted(trial_ids)
    ids = sa.bindparam("trial_ids", listed, sa.Integer(), expanding=True, literal_execute=True)
    return column.not_in(ids)


def _is_broken(value_json: str) -> bool:
    # Before Optuna 5 one list, since then an attribute for each constraint.
    value = json.loads(value_json)
    values = value if isinstance(value, list) else [value]
    return any(each > 0 for each in values)
