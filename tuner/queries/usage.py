"""Recorded usage of attempts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from tuner.devices.usage.tally import MIB, MJ_PER_KWH
from tuner.queries.dispatchers import has_our_tables
from tuner.store.connection.sql_seconds import seconds_between
from tuner.store.schema.models import AttemptRow, AttemptUsageRow, DispatcherRow, LeaseRow


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptUse:
    """Usage of one attempt. Figures that none of its devices report are None."""

    #: 2 for two devices of a second, 0.5 for half of one; None while it holds them.
    device_s: float | None
    #: Mean over its devices and its time, while it was sampled.
    utilization_pct: float | None
    #: Maximum over its devices.
    memory_max_bytes: int | None
    energy_kwh: float | None


NO_USE = AttemptUse(device_s=None, utilization_pct=None, memory_max_bytes=None, energy_kwh=None)


def read_use(connection: sa.Connection, attempts: sa.Subquery) -> Mapping[int, AttemptUse]:
    """Usage by attempt.

    Args:
        connection: To a database with the tuner's tables.
        attempts: With a column `id`.
    """
    seen = AttemptUsageRow
    held_s = seconds_between(LeaseRow.leased_at, LeaseRow.released_at) * LeaseRow.share
    told_ms = sa.case((seen.utilization_pct_ms.is_not(None), seen.covered_ms), else_=0)
    is_same = sa.and_(seen.attempt_id == LeaseRow.attempt_id, seen.device_id == LeaseRow.device_id)
    query = (
        sa.select(
            LeaseRow.attempt_id,
            sa.func.sum(held_s).label("held_s"),
            (sa.func.count() - sa.func.count(LeaseRow.released_at)).label("n_open"),
            sa.func.sum(told_ms).label("told_ms"),
            sa.func.sum(seen.utilization_pct_ms).label("utilization_pct_ms"),
            sa.func.max(seen.memory_max_mib).label("memory_max_mib"),
            sa.func.sum(seen.energy_mj).label("energy_mj"),
        )
        .outerjoin(seen, is_same)
        .where(LeaseRow.attempt_id.in_(sa.select(attempts.c.id)))
        .group_by(LeaseRow.attempt_id)
    )
    rows: sa.CursorResult[Any] = connection.execute(query)
    return {row.attempt_id: _use(row) for row in rows}


def _use(row: sa.Row[Any]) -> AttemptUse:
    is_told = row.utilization_pct_ms is not None
    return AttemptUse(
        device_s=None if row.n_open else float(row.held_s),
        utilization_pct=float(row.utilization_pct_ms) / float(row.told_ms) if is_told else None,
        memory_max_bytes=None if row.memory_max_mib is None else row.memory_max_mib * MIB,
        energy_kwh=None if row.energy_mj is None else float(row.energy_mj) / MJ_PER_KWH,
    )


def read_energy_kwh(connection: sa.Connection, study_id: int) -> float | None:
    """Energy of all attempts of a study; None if no device reports it."""
    if not has_our_tables(connection):
        return None
    query = (
        sa.select(sa.func.sum(AttemptUsageRow.energy_mj))
        .join(AttemptRow, AttemptRow.id == AttemptUsageRow.attempt_id)
        .join(DispatcherRow, DispatcherRow.id == AttemptRow.dispatcher_id)
        .where(DispatcherRow.study_id == study_id)
    )
    energy_mj = connection.execute(query).scalar()
    return None if energy_mj is None else float(energy_mj) / MJ_PER_KWH
