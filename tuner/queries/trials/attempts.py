"""Attempts of many trials at once, with the devices that they hold or held."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from tuner.devices.device import Device, DeviceId, gpu_of_share
from tuner.domain.attempt import AttemptState, Cause, Outcome
from tuner.queries.dispatchers import has_our_tables
from tuner.queries.usage import NO_USE, AttemptUse, read_use
from tuner.store.optuna_tables.statements import aware, of_trials
from tuner.store.schema.models import (
    AttemptRow,
    DeviceRow,
    DispatcherRow,
    HostRow,
    LeaseRow,
    table_of,
)

_ATTEMPTS = table_of(AttemptRow)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAttempt:
    """One recorded launch of a trial."""

    number: int
    state: AttemptState
    #: None while it runs.
    outcome: Outcome | None
    cause: Cause | None
    detail: str
    dispatcher_id: int
    host: str
    #: Labels such as `GPU 0`.
    devices: tuple[str, ...]
    pid: int | None
    seed: int
    peak_memory_bytes: int | None
    log_path: str
    leased_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    finished_at: datetime | None
    use: AttemptUse

    @property
    def is_open(self) -> bool:
        """Whether it holds its devices, according to the database."""
        return self.state is not AttemptState.FINISHED


def read_attempts(
    connection: sa.Connection, study_id: int, trial_ids: Collection[int] | None = None
) -> dict[int, list[StoredAttempt]]:
    """By trial id, in their order."""
    if not has_our_tables(connection):
        return {}
    attempts = of_trials(_ATTEMPTS, study_id, trial_ids).subquery()
    devices = _read_devices(connection, attempts)
    uses = read_use(connection, attempts)
    query = (
        sa.select(attempts, HostRow.name.label("host"))
        .join(DispatcherRow, DispatcherRow.id == attempts.c.dispatcher_id)
        .join(HostRow, HostRow.id == DispatcherRow.host_id)
        .order_by(attempts.c.trial_id, attempts.c.number)
    )
    found: dict[int, list[StoredAttempt]] = {}
    for row in connection.execute(query):
        found.setdefault(row.trial_id, []).append(_attempt(row, devices, uses))
    return found


def _read_devices(connection: sa.Connection, attempts: sa.Subquery) -> dict[int, list[str]]:
    devices = {row.id: label_of(row) for row in connection.execute(sa.select(table_of(DeviceRow)))}
    query = (
        sa.select(LeaseRow.attempt_id, LeaseRow.device_id)
        .where(LeaseRow.attempt_id.in_(sa.select(attempts.c.id)))
        .order_by(LeaseRow.id)
    )
    found: dict[int, list[str]] = {}
    for row in connection.execute(query):
        found.setdefault(row.attempt_id, []).append(devices[row.device_id])
    return found


def label_of(row: sa.Row[Any]) -> str:
    """The label of a device, from a row with its device, kind, name and number."""
    device_id = DeviceId(row.device)
    gpu_id = gpu_of_share(device_id)
    device = Device(
        id=device_id,
        kind=row.kind,
        name=row.name,
        index=row.number,
        share_of=gpu_id if gpu_id != device_id else None,
    )
    return device.label


def _attempt(
    row: sa.Row[Any], devices: Mapping[int, list[str]], uses: Mapping[int, AttemptUse]
) -> StoredAttempt:
    return StoredAttempt(
        number=row.number,
        state=row.state,
        outcome=row.outcome,
        cause=row.cause,
        detail=row.detail,
        dispatcher_id=row.dispatcher_id,
        host=row.host,
        devices=tuple(devices.get(row.id, ())),
        pid=row.pid,
        seed=row.seed,
        peak_memory_bytes=row.peak_memory_bytes,
        log_path=row.log_path,
        leased_at=aware(row.leased_at),
        started_at=aware(row.started_at),
        ended_at=aware(row.ended_at),
        finished_at=aware(row.finished_at),
        use=uses.get(row.id, NO_USE),
    )
