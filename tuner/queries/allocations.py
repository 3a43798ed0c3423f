"""A study's allocations, as of the engine's last report."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from tuner.domain.allocation import AllocationState
from tuner.queries.dispatchers import has_our_tables
from tuner.store.optuna_tables.statements import TRIALS, aware, in_zone
from tuner.store.schema.models import AllocationRow, AttemptRow, DispatcherRow


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAllocation:
    """An allocation of an engine: requested, running or ended."""

    number: int
    engine: str
    name: str
    state: AllocationState
    #: The engine's own words.
    reason: str
    node: str | None
    #: Number of requested GPUs.
    n_devices: int
    submitted_by: str
    submitted_at: datetime
    started_at: datetime | None
    deadline: datetime | None
    ended_at: datetime | None
    #: Numbers of the trials that run in it.
    trials: tuple[int, ...]


def read_allocations(connection: sa.Connection, study_id: int) -> list[StoredAllocation]:
    """All allocations of a study, in the order of their numbers."""
    if not has_our_tables(connection):
        return []
    trials = _running_trials(connection, study_id)
    query = (
        sa.select(AllocationRow)
        .where(AllocationRow.study_id == study_id)
        .order_by(AllocationRow.number)
    )
    columns = AllocationRow.__table__.columns
    return [
        StoredAllocation(
            number=row.number,
            engine=row.engine,
            name=row.name,
            state=row.state,
            reason=row.reason,
            node=row.node,
            n_devices=row.n_devices,
            submitted_by=row.submitted_by,
            submitted_at=in_zone(row.submitted_at),
            started_at=aware(row.started_at),
            deadline=aware(row.deadline),
            ended_at=aware(row.ended_at),
            trials=tuple(trials.get(row.id, ())),
        )
        for row in connection.execute(query.with_only_columns(*columns))
    ]


def _running_trials(connection: sa.Connection, study_id: int) -> dict[int, list[int]]:
    """Numbers of trials, by the id of the allocation."""
    query = (
        sa.select(DispatcherRow.allocation_id, TRIALS.c.number)
        .join(AttemptRow, AttemptRow.dispatcher_id == DispatcherRow.id)
        .join(TRIALS, TRIALS.c.trial_id == AttemptRow.trial_id)
        .where(
            DispatcherRow.study_id == study_id,
            DispatcherRow.allocation_id.is_not(None),
            DispatcherRow.ended_at.is_(None),
            AttemptRow.finished_at.is_(None),
        )
        .order_by(TRIALS.c.number)
    )
    found: dict[int, list[int]] = {}
    for row in connection.execute(query):
        found.setdefault(row.allocation_id, []).append(row.number)
    return found
