"""Which devices have no trial at this moment, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from tuner.devices.idle_causes import FRESH_S, IdleCause
from tuner.queries.dispatchers import StoredDispatcher
from tuner.queries.trials.attempts import label_of
from tuner.store.optuna_tables.statements import in_zone
from tuner.store.schema.models import AttemptRow, DeviceRow, HostRow, IdleRow, LeaseRow
from tuner.store.schema.statements import in_utc


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleNow:
    """A device without a trial."""

    host: str
    device: str
    cause: IdleCause
    since: datetime
    dispatcher_id: int


def read_idle_now(
    connection: sa.Connection, dispatchers: Sequence[StoredDispatcher], now: datetime
) -> list[IdleNow]:
    """Idle devices of live dispatchers, as last recorded some seconds ago."""
    alive = [each.id for each in dispatchers if each.is_alive]
    if not alive:
        return []
    # It may have got an attempt since. CPU slots are each dispatcher's own, GPUs are not.
    is_of_all = LeaseRow.held_device_id.is_not(None)
    held = (
        sa.select(LeaseRow.id)
        .join(AttemptRow, AttemptRow.id == LeaseRow.attempt_id)
        .where(LeaseRow.device_id == IdleRow.device_id, LeaseRow.released_at.is_(None))
        .where(sa.or_(is_of_all, AttemptRow.dispatcher_id == IdleRow.dispatcher_id))
    )
    query = (
        sa.select(
            DeviceRow.id,
            DeviceRow.device,
            DeviceRow.kind,
            DeviceRow.name,
            DeviceRow.number,
            HostRow.name.label("host"),
            IdleRow.dispatcher_id,
            IdleRow.cause,
            IdleRow.began_at,
        )
        .join(DeviceRow, DeviceRow.id == IdleRow.device_id)
        .join(HostRow, HostRow.id == DeviceRow.host_id)
        .where(IdleRow.dispatcher_id.in_(alive))
        .where(IdleRow.ended_at >= in_utc(now - timedelta(seconds=FRESH_S)))
        .where(~held.exists())
        .order_by(HostRow.name, DeviceRow.number, DeviceRow.id, IdleRow.ended_at)
    )
    rows: sa.CursorResult[Any] = connection.execute(query)
    # Of several the last one: those before it are over.
    newest = {row.id: row for row in rows}
    return [
        IdleNow(
            host=row.host,
            device=label_of(row),
            cause=row.cause,
            since=in_zone(row.began_at),
            dispatcher_id=row.dispatcher_id,
        )
        for row in newest.values()
    ]
