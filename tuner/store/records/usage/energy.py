"""Energy use of a study's attempts, as far as their devices report it."""

from __future__ import annotations

import sqlalchemy as sa

from tuner.devices.usage.tally import MJ_PER_KWH
from tuner.store.schema.models import AttemptRow, AttemptUsageRow, DispatcherRow


def energy_kwh_of(connection: sa.Connection, study_id: int, *, but_of: int | None = None) -> float:
    """Energy of all attempts in kWh; 0 if no device reports it.

    Args:
        connection: With a consistent snapshot.
        study_id: Id of the study.
        but_of: A dispatcher whose attempts are not counted.
    """
    query = (
        sa.select(sa.func.sum(AttemptUsageRow.energy_mj))
        .join(AttemptRow, AttemptRow.id == AttemptUsageRow.attempt_id)
        .join(DispatcherRow, DispatcherRow.id == AttemptRow.dispatcher_id)
        .where(DispatcherRow.study_id == study_id)
    )
    if but_of is not None:
        query = query.where(DispatcherRow.id != but_of)
    return float(connection.execute(query).scalar() or 0.0) / MJ_PER_KWH
