"""Durations of ended trials, over all their attempts."""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa
from optuna.trial import TrialState

from tuner.domain.attempt import ENDED_WELL
from tuner.domain.budget import N_TYPICAL, EndedUses, TrialUse
from tuner.store.connection.sql_seconds import seconds_between
from tuner.store.optuna_tables.statements import TRIALS
from tuner.store.schema.models import AttemptRow, LeaseRow

_COMPLETED = frozenset({TrialState.COMPLETE})
_ENDED = frozenset({TrialState.COMPLETE, TrialState.PRUNED})


def ended_uses(connection: sa.Connection, study_id: int) -> EndedUses:
    """Time and device use of the newest ended trials."""
    completed = _newest(connection, study_id, _COMPLETED)
    ended = _newest(connection, study_id, _ENDED)
    uses = _uses(connection, {*completed, *ended})
    return EndedUses(
        completed=[uses[each] for each in completed if each in uses],
        ended=[uses[each] for each in ended if each in uses],
    )


def _newest(connection: sa.Connection, study_id: int, states: Collection[TrialState]) -> list[int]:
    """Ids, the oldest first; without those that were pruned because they failed."""
    ended_well = sa.exists().where(
        AttemptRow.trial_id == TRIALS.c.trial_id, AttemptRow.outcome.in_(ENDED_WELL)
    )
    newest = (
        sa.select(TRIALS.c.trial_id)
        .where(TRIALS.c.study_id == study_id, TRIALS.c.state.in_(states), ended_well)
        .order_by(TRIALS.c.trial_id.desc())
        .limit(N_TYPICAL)
    )
    return sorted(connection.execute(newest).scalars())


def _uses(connection: sa.Connection, ids: Collection[int]) -> dict[int, TrialUse]:
    lasted_s = sa.func.sum(seconds_between(AttemptRow.leased_at, AttemptRow.finished_at))
    times = sa.select(AttemptRow.trial_id, lasted_s.label("s")).where(
        AttemptRow.trial_id.in_(ids), AttemptRow.finished_at.is_not(None)
    )
    held_s = seconds_between(LeaseRow.leased_at, LeaseRow.released_at) * LeaseRow.share
    devices = (
        sa.select(AttemptRow.trial_id, sa.func.sum(held_s).label("s"))
        .join(LeaseRow, LeaseRow.attempt_id == AttemptRow.id)
        .where(AttemptRow.trial_id.in_(ids), LeaseRow.released_at.is_not(None))
    )
    time_s, device_s = (
        {row.trial_id: float(row.s) for row in connection.execute(each)}
        for each in (
            times.group_by(AttemptRow.trial_id),
            devices.group_by(AttemptRow.trial_id),
        )
    )
    return {
        each: TrialUse(time_s=lasted_s, device_s=device_s.get(each, 0.0))
        for each, lasted_s in time_s.items()
    }
