"""Data for trackers from the study's database: new attempts, new points, endings."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa
from optuna.trial import TrialState

from tuner.host.process_identity import Life, life_of, own_process
from tuner.queries.studies import Objective
from tuner.store.optuna_tables.statements import TRIALS, aware, ids_of, read_curve_rows
from tuner.store.records.dispatchers.starts import process_of
from tuner.store.schema.models import (
    AttemptRow,
    DispatcherRow,
    HostRow,
    MetricRow,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialHead:
    """A trial and its last attempt, in few columns."""

    trial_id: int
    number: int
    state: TrialState
    attempt: int
    dispatcher_id: int
    #: End of the last attempt; None while it runs.
    ended_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A stored value of a curve."""

    trial_id: int
    name: str
    step: int
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """Ids of the last rows that were read. What is written later has larger ones."""

    metric: int = 0
    curve: int = 0

    def beyond(self, other: Cursor) -> Cursor:
        """The larger ones of both."""
        return Cursor(metric=max(self.metric, other.metric), curve=max(self.curve, other.curve))


def adopted_dispatchers(connection: sa.Connection, dispatcher_id: int) -> set[int]:
    """Ended earlier starts of this study in the same folder of this host.

    This start finishes writing their trials.
    """
    table = DispatcherRow
    own = connection.execute(
        sa.select(table.study_id, table.host_id, table.folder).where(table.id == dispatcher_id)
    ).one()
    query = (
        sa.select(table.id, HostRow.name, table.pid, table.versions, table.ended_at)
        .join(HostRow, HostRow.id == table.host_id)
        .where(
            table.study_id == own.study_id,
            table.host_id == own.host_id,
            table.folder == own.folder,
            table.id < dispatcher_id,
        )
    )
    here = own_process()
    return {
        row.id
        for row in connection.execute(query)
        if row.ended_at is not None
        or life_of(process_of(row.name, row.pid, row.versions), here=here) is Life.GONE
    }


def new_attempts(
    connection: sa.Connection, study_id: int, dispatchers: Collection[int], after: int
) -> tuple[set[int], int]:
    """Ids of the trials of new attempts, and the largest id of such an attempt.

    Args:
        connection: The database.
        study_id: Id of the study.
        dispatchers: Whose attempts.
        after: What this returned last; 0 at first.
    """
    query = sa.select(AttemptRow.id, AttemptRow.trial_id).where(
        AttemptRow.dispatcher_id.in_(dispatchers),
        AttemptRow.id > after,
        AttemptRow.trial_id.in_(ids_of(study_id)),
    )
    rows = connection.execute(query).all()
    return {row.trial_id for row in rows}, max((row.id for row in rows), default=after)


def read_heads(connection: sa.Connection, trial_ids: Collection[int]) -> list[TrialHead]:
    """Trials with attempts, in the order of their numbers."""
    last = (
        sa.select(AttemptRow.trial_id, sa.func.max(AttemptRow.number).label("number"))
        .where(AttemptRow.trial_id.in_(trial_ids))
        .group_by(AttemptRow.trial_id)
        .subquery()
    )
    query = (
        sa.select(
            TRIALS.c.trial_id,
            TRIALS.c.number,
            TRIALS.c.state,
            AttemptRow.number.label("attempt"),
            AttemptRow.dispatcher_id,
            AttemptRow.ended_at,
        )
        .join(last, last.c.trial_id == TRIALS.c.trial_id)
        .join(
            AttemptRow,
            sa.and_(AttemptRow.trial_id == last.c.trial_id, AttemptRow.number == last.c.number),
        )
        .order_by(TRIALS.c.number)
    )
    return [
        TrialHead(
            trial_id=row.trial_id,
            number=row.number,
            state=row.state,
            attempt=row.attempt,
            dispatcher_id=row.dispatcher_id,
            ended_at=aware(row.ended_at),
        )
        for row in connection.execute(query)
    ]


def read_rows(
    connection: sa.Connection,
    trial_ids: Sequence[int],
    objectives: Sequence[Objective],
    after: Cursor,
) -> tuple[list[Row], Cursor]:
    """Points of trials, with the steps of each metric in order; and the end of the rows.

    Args:
        connection: Connection to the database.
        trial_ids: Ids of the trials.
        objectives: The study's objectives.
        after: Rows up to this position are skipped.
    """
    if not trial_ids:
        return [], after
    rows, metric = _metric_rows(connection, trial_ids, after.metric)
    curve = after.curve
    if len(objectives) == 1:
        # Several objectives are all among the metrics.
        found, curve = _curve_rows(connection, trial_ids, after.curve, objectives[0].name)
        rows = [*found, *rows]
    rows.sort(key=lambda row: (row.trial_id, row.step))
    return rows, Cursor(metric=metric, curve=curve)


def _metric_rows(
    connection: sa.Connection, trial_ids: Sequence[int], after: int
) -> tuple[list[Row], int]:
    query = (
        sa.select(
            MetricRow.id, AttemptRow.trial_id, MetricRow.name, MetricRow.step, MetricRow.value
        )
        .join(AttemptRow, AttemptRow.id == MetricRow.attempt_id)
        .where(AttemptRow.trial_id.in_(trial_ids), MetricRow.id > after)
        .order_by(MetricRow.id)
    )
    rows = connection.execute(query).all()
    points = [
        Row(
            trial_id=row.trial_id,
            name=row.name,
            step=row.step,
            value=math.nan if row.value is None else row.value,
        )
        for row in rows
    ]
    return points, max((row.id for row in rows), default=after)


def _curve_rows(
    connection: sa.Connection, trial_ids: Sequence[int], after: int, name: str
) -> tuple[list[Row], int]:
    rows = read_curve_rows(connection, trial_ids, after)
    points = [
        Row(trial_id=trial_id, name=name, step=step, value=value)
        for _, trial_id, step, value in rows
    ]
    return points, max((row_id for row_id, *_ in rows), default=after)
