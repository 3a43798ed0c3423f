"""Costs of trials: device-hours from leases, energy from device reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import sqlalchemy as sa

from tuner.app.data.devices.leases import Leases
from tuner.devices.usage.tally import MJ_PER_KWH
from tuner.domain.budget import SECONDS_PER_HOUR
from tuner.queries.dispatchers import has_our_tables
from tuner.store.optuna_tables.statements import TRIALS
from tuner.store.schema.models import AttemptRow, AttemptUsageRow


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialCosts:
    """By trial id; trials without data are absent."""

    #: Over all attempts, until now for one that holds devices; half a device counts half.
    device_hours: Mapping[int, float]
    energy_kwh: Mapping[int, float]


NO_COSTS = TrialCosts(device_hours={}, energy_kwh={})


def device_hours_of(leases: Leases) -> dict[int, float]:
    """By trial id."""
    columns = leases.columns
    held_s = (leases.ends_s() - columns.started_at_s) * columns.shares
    trial_ids, places = np.unique(columns.trial_ids, return_inverse=True)
    sums = np.bincount(places, weights=np.nan_to_num(held_s), minlength=len(trial_ids))
    return dict(zip(trial_ids.tolist(), (sums / SECONDS_PER_HOUR).tolist(), strict=True))


def read_energy_kwh_of_trials(connection: sa.Connection, study_id: int) -> dict[int, float]:
    """Energy by trial id, for trials whose devices reported it."""
    if not has_our_tables(connection):
        return {}
    query = (
        sa.select(AttemptRow.trial_id, sa.func.sum(AttemptUsageRow.energy_mj).label("energy_mj"))
        .join(AttemptUsageRow, AttemptUsageRow.attempt_id == AttemptRow.id)
        .join(TRIALS, TRIALS.c.trial_id == AttemptRow.trial_id)
        .where(TRIALS.c.study_id == study_id, AttemptUsageRow.energy_mj.is_not(None))
        .group_by(AttemptRow.trial_id)
    )
    rows = connection.execute(query)
    return {row.trial_id: float(row.energy_mj) / MJ_PER_KWH for row in rows}
