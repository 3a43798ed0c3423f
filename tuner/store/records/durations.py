"""How long completed trials took, all their attempts together."""

from __future__ import annotations

import sqlalchemy as sa
from optuna.trial import TrialState

from tuner.budget import N_TYPICAL, TrialUse
from tuner.store.connection.sql_seconds import seconds_between
from tuner.store.optuna_tables.statements import TRIALS
from tuner.store.schema.models import AttemptRow, LeaseRow


def completed_uses(connection: sa.Connection, study_id: int) -> list[TrialUse]:
    """Of the newest completed trials that dispatchers have run, the oldest first."""
    newest = (
        sa.select(TRIALS.c.trial_id)
        .where(TRIALS.c.study_id == study_id, TRIALS.c.state == TrialState.COMPLETE)
        .order_by(TRIALS.c.trial_id.desc())
        .limit(N_TYPICAL)
    )
    ids = sorted(connection.execute(newest).scalars())
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
    return [
        TrialUse(time_s=time_s[each], device_s=device_s.get(each, 0.0))
        for each in ids
        if each in time_s
    ]
