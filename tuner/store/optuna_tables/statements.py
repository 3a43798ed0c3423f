"""Optuna's tables, for statements about many trials at once."""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from optuna.storages._rdb import models as models

STUDIES: sa.Table = models.StudyModel.__table__
DIRECTIONS: sa.Table = models.StudyDirectionModel.__table__
STUDY_ATTRS: sa.Table = models.StudyUserAttributeModel.__table__
STUDY_SYSTEM_ATTRS: sa.Table = models.StudySystemAttributeModel.__table__
TRIALS: sa.Table = models.TrialModel.__table__
PARAMS: sa.Table = models.TrialParamModel.__table__
VALUES: sa.Table = models.TrialValueModel.__table__
CURVES: sa.Table = models.TrialIntermediateValueModel.__table__
USER_ATTRS: sa.Table = models.TrialUserAttributeModel.__table__
SYSTEM_ATTRS: sa.Table = models.TrialSystemAttributeModel.__table__

#: Optuna's attribute with the configuration of an enqueued trial.
FIXED_PARAMS_ATTR = "fixed_params"
METRIC_NAMES_ATTR = "study:metric_names"
#: User attributes of a study: its search space and the names of its objectives.
SPACE_ATTR = "tuner:space"
OBJECTIVES_ATTR = "tuner:objectives"
#: User attribute of a study: the random id by which its files are known.
IDENTITY_ATTR = "tuner:identity"
#: User attribute of a trial that a user has requested: `user@host`.
ASKED_BY_ATTR = "tuner:asked_by"
CONSTRAINTS_ATTR = "constraints"
#: Prefix of the tuner's own constraints (`tuner.search.trial_attributes.infeasible`).
OUR_CONSTRAINTS = "tuner:"
#: More identifiers in one statement are slower than a look at the whole study.
MAX_LISTED = 500


def of_trials(table: sa.Table, study_id: int, trial_ids: Collection[int] | None) -> sa.Select[Any]:
    """All columns of the rows of some trials of a study, or of nearly all; None: of all."""
    query = sa.select(table)
    if trial_ids is not None and len(trial_ids) <= MAX_LISTED:
        return query.where(table.c.trial_id.in_(trial_ids))
    return query.where(table.c.trial_id.in_(ids_of(study_id)))


def ids_of(study_id: int) -> sa.Select[Any]:
    return sa.select(TRIALS.c.trial_id).where(TRIALS.c.study_id == study_id)


def known(connection: sa.Connection, query: sa.Select[Any], problem: str) -> Any:
    """The only value of a query.

    Raises:
        KeyError: With `problem`, if there is none.
    """
    value = connection.execute(query).scalar()
    if value is None:
        raise KeyError(problem)
    return value


def read_values(
    connection: sa.Connection, study_id: int, trial_ids: Collection[int] | None = None
) -> dict[int, dict[int, float]]:
    """Final values by trial id and place of the objective."""
    model = models.TrialValueModel
    found: dict[int, dict[int, float]] = {}
    columns = VALUES.c
    query = of_trials(VALUES, study_id, trial_ids).with_only_columns(
        columns.trial_id, columns.objective, columns.value, columns.value_type
    )
    for trial_id, objective, value, kind in connection.execute(query).all():
        found.setdefault(trial_id, {})[objective] = model.stored_repr_to_value(value, kind)
    return found


def read_curves(
    connection: sa.Connection, study_id: int, trial_ids: Collection[int]
) -> dict[int, dict[int, float]]:
    """Reported values by trial id and step, the steps in their order."""
    model = models.TrialIntermediateValueModel
    found: dict[int, dict[int, float]] = {trial_id: {} for trial_id in trial_ids}
    query = of_trials(CURVES, study_id, trial_ids).order_by(CURVES.c.trial_id, CURVES.c.step)
    for row in connection.execute(query):
        if row.trial_id in found:
            found[row.trial_id][row.step] = model.stored_repr_to_intermediate_value(
                row.intermediate_value, row.intermediate_value_type
            )
    return found


def read_curve_rows(
    connection: sa.Connection, trial_ids: Collection[int], after: int
) -> list[tuple[int, int, int, float]]:
    """Row id, trial id, step and value of reports that were first stored after a row.

    Args:
        connection: The database.
        trial_ids: Whose reports; at most `MAX_LISTED`.
        after: Id of that row.
    """
    read = models.TrialIntermediateValueModel.stored_repr_to_intermediate_value
    row_id = CURVES.c.trial_intermediate_value_id
    query = (
        sa.select(CURVES).where(CURVES.c.trial_id.in_(trial_ids), row_id > after).order_by(row_id)
    )
    return [
        (
            row.trial_intermediate_value_id,
            row.trial_id,
            row.step,
            read(row.intermediate_value, row.intermediate_value_type),
        )
        for row in connection.execute(query)
    ]


def read_user_attributes(
    connection: sa.Connection, study_id: int, trial_ids: Collection[int] | None = None
) -> dict[int, dict[str, object]]:
    """By trial id and key."""
    found: dict[int, dict[str, object]] = {}
    query = of_trials(USER_ATTRS, study_id, trial_ids).order_by(
        USER_ATTRS.c.trial_user_attribute_id
    )
    for row in connection.execute(query):
        found.setdefault(row.trial_id, {})[row.key] = json.loads(row.value_json)
    return found


def aware(at: datetime | None) -> datetime | None:
    """An instant of the database, which are all in UTC without a zone."""
    return in_zone(at) if at else None


def in_zone(at: datetime) -> datetime:
    return at.replace(tzinfo=UTC)
