"""Costs of trials: device-hours from leases, energy from device reports."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import sqlalchemy as sa

from tuner.app.data.devices.leases import Leases
from tuner.app.data.trials.columns import TrialColumns
from tuner.devices.usage.tally import MJ_PER_KWH
from tuner.domain.budget import SECONDS_PER_HOUR
from tuner.queries.dispatchers import has_our_tables
from tuner.store.optuna_tables.statements import MAX_LISTED, TRIALS
from tuner.store.schema.models import AttemptRow, AttemptUsageRow


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialCosts:
    """By trial id; trials without data are absent."""

    #: Over all attempts, until now for one that holds devices; half a device counts half.
    device_hours: Mapping[int, float]
    energy_kwh: Mapping[int, float]


#: Usage of an attempt is stored soon after its end; after this time it does not change.
_SETTLED_S = 60.0
NO_COSTS = TrialCosts(device_hours={}, energy_kwh={})


def device_hours_of(leases: Leases) -> dict[int, float]:
    """By trial id."""
    columns = leases.columns
    held_s = (leases.ends_s() - columns.started_at_s) * columns.shares
    trial_ids, places = np.unique(columns.trial_ids, return_inverse=True)
    sums = np.bincount(places, weights=np.nan_to_num(held_s), minlength=len(trial_ids))
    return dict(zip(trial_ids.tolist(), (sums / SECONDS_PER_HOUR).tolist(), strict=True))


class GrowingEnergy:
    """Energy of trials whose devices reported it; that of long ended ones is read once."""

    def __init__(self, study_id: int) -> None:
        self._study_id = study_id
        self._held: Mapping[int, float] = {}
        self._settled: frozenset[int] = frozenset()
        self._lock = threading.Lock()

    def refresh(
        self, connection: sa.Connection, trials: TrialColumns, now: datetime
    ) -> Mapping[int, float]:
        """kWh by trial id; the same object while nothing can have changed.

        Args:
            connection: One that sees a single instant.
            trials: All of the study.
            now: The current time.
        """
        with self._lock:
            ids = trials.ids.tolist()
            if not self._settled.issubset(ids):  # The study was deleted and made again.
                self._held, self._settled = {}, frozenset()
            wanted = [each for each in ids if each not in self._settled]
            if wanted:
                is_some = len(wanted) <= MAX_LISTED
                read = _read_energy_kwh(connection, self._study_id, wanted if is_some else None)
                found = {**self._held, **read} if is_some else read
                self._held = self._held if found == self._held else found
                is_settled = trials.ended_at_s < now.timestamp() - _SETTLED_S
                self._settled = frozenset(trials.ids[is_settled].tolist())
            return self._held


def _read_energy_kwh(
    connection: sa.Connection, study_id: int, trial_ids: Collection[int] | None
) -> dict[int, float]:
    if not has_our_tables(connection):
        return {}
    query = (
        sa.select(AttemptRow.trial_id, sa.func.sum(AttemptUsageRow.energy_mj).label("energy_mj"))
        .join(AttemptUsageRow, AttemptUsageRow.attempt_id == AttemptRow.id)
        .join(TRIALS, TRIALS.c.trial_id == AttemptRow.trial_id)
        .where(TRIALS.c.study_id == study_id, AttemptUsageRow.energy_mj.is_not(None))
        .group_by(AttemptRow.trial_id)
    )
    if trial_ids is not None:
        query = query.where(AttemptRow.trial_id.in_(trial_ids))
    rows = connection.execute(query)
    return {row.trial_id: float(row.energy_mj) / MJ_PER_KWH for row in rows}
