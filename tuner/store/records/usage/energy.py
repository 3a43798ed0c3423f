"""What the attempts of a study have taken from the socket, as far as their devices tell."""

from __future__ import annotations

import sqlalchemy as sa

from tuner.devices.usage.tally import MJ_PER_KWH
from tuner.store.schema.models import AttemptRow, AttemptUsageRow, DispatcherRow


def energy_kwh_of(connection: sa.Connection, study_id: int, *, but_of: int | None = None) -> float:
    """Of all its attempts; 0 where no device tells.

    Args:
        connection: One that sees a single instant.
        study_id: Of the study.
        but_of: The dispatcher whose attempts are not counted.
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
