"""The last report of each trial, without its whole curve."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

import sqlalchemy as sa
from optuna.trial import TrialState

from tuner.queries.dispatchers import has_our_tables
from tuner.store.optuna_tables.statements import CURVES, MAX_LISTED, TRIALS, ids_of, models
from tuner.store.schema.models import AttemptRow, MetricRow

#: A step, and the values by objective.
LastReport: TypeAlias = tuple[int, Mapping[str, float]]


def read_last_reports(
    connection: sa.Connection,
    study_id: int,
    names: Sequence[str],
    trial_ids: Collection[int],
) -> dict[int, LastReport]:
    """Last reports by trial id, for unfinished trials that have one.

    Args:
        connection: With a consistent snapshot.
        study_id: Id of the study.
        names: The study's objectives, in order.
        trial_ids: Ids of running or waiting trials.
    """
    if not trial_ids:
        return {}
    chosen: sa.Select[tuple[int]] | Collection[int] = trial_ids
    if len(trial_ids) > MAX_LISTED:
        is_open = TRIALS.c.state.in_([TrialState.WAITING, TrialState.RUNNING])
        chosen = ids_of(study_id).where(is_open)
    if len(names) == 1:
        return _last_values(connection, names[0], chosen)
    return _last_metrics(connection, names, chosen) if has_our_tables(connection) else {}


def _last_values(
    connection: sa.Connection, name: str, chosen: sa.Select[tuple[int]] | Collection[int]
) -> dict[int, LastReport]:
    last = (
        sa.select(CURVES.c.trial_id, sa.func.max(CURVES.c.step).label("step"))
        .where(CURVES.c.trial_id.in_(chosen))
        .group_by(CURVES.c.trial_id)
        .subquery()
    )
    query = sa.select(CURVES).join(
        last, sa.and_(last.c.trial_id == CURVES.c.trial_id, last.c.step == CURVES.c.step)
    )
    read = models.TrialIntermediateValueModel.stored_repr_to_intermediate_value
    return {
        row.trial_id: (
            row.step,
            {name: read(row.intermediate_value, row.intermediate_value_type)},
        )
        for row in connection.execute(query)
    }


def _last_metrics(
    connection: sa.Connection,
    names: Sequence[str],
    chosen: sa.Select[tuple[int]] | Collection[int],
) -> dict[int, LastReport]:
    """Optuna has no curves of several objectives: their reports are among our metrics."""
    of_trial = AttemptRow.trial_id.in_(chosen)
    is_value = sa.and_(MetricRow.name.in_(names), MetricRow.value.is_not(None))
    last = (
        sa.select(AttemptRow.trial_id, sa.func.max(MetricRow.step).label("step"))
        .join(MetricRow, MetricRow.attempt_id == AttemptRow.id)
        .where(of_trial, is_value)
        .group_by(AttemptRow.trial_id)
        .subquery()
    )
    query = (
        sa.select(AttemptRow.trial_id, MetricRow.step, MetricRow.name, MetricRow.value)
        .join(MetricRow, MetricRow.attempt_id == AttemptRow.id)
        .join(
            last,
            sa.and_(last.c.trial_id == AttemptRow.trial_id, last.c.step == MetricRow.step),
        )
        .where(is_value)
        .order_by(AttemptRow.trial_id, AttemptRow.number)
    )
    found: dict[int, tuple[int, dict[str, float]]] = {}
    for row in connection.execute(query):
        found.setdefault(row.trial_id, (row.step, {}))[1][row.name] = row.value
    return {**found}
