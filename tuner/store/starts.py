"""Starts of the dispatcher: who works on a study now, who died, and what was spent so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import sqlalchemy as sa

from tuner.attempt import AttemptState, Cause, Outcome
from tuner.devices.device import Device
from tuner.errors import StoreError
from tuner.provenance import GitState, HostFacts, is_alive
from tuner.store.models import (
    AttemptRow,
    DeviceRow,
    DispatcherRow,
    HostRow,
    LeaseRow,
    table_of,
)
from tuner.store.rows import as_stored, in_utc, insert_row

#: A dispatcher on another host that has not written for this long is taken for dead.
STALE_AFTER_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRecord:
    """One start of the dispatcher, for the record."""

    study_id: int
    host: HostFacts
    seed: int
    study_file: str
    folder: str
    versions: Mapping[str, str]
    git: GitState


@dataclass(frozen=True, slots=True, kw_only=True)
class PastUse:
    """What a study has spent before this start."""

    time_s: float
    device_s: float


class _OpenDispatcher(NamedTuple):
    """A start that has not ended, as far as the database knows."""

    id: int
    host: str
    pid: int
    process_created_at_s: float
    started_at: datetime
    beat_at: datetime


def lock_study(connection: sa.Connection, study_id: int) -> None:
    """Lets one dispatcher at a time look who works on a study, to the transaction's end."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        return
    studies = sa.table("studies", sa.column("study_id"))
    query = sa.select(studies.c.study_id).where(studies.c.study_id == study_id)
    connection.execute(query.with_for_update())


def refuse_second_dispatcher(connection: sa.Connection, start: StartRecord, at: datetime) -> None:
    """
    Raises:
        StoreError: If a dispatcher that is alive works on the study.
    """
    for other in _open_dispatchers(connection, start.study_id):
        if other.host == start.host.name:
            is_working = is_alive(other.pid, other.process_created_at_s)
        else:
            silent_s = (in_utc(at) - other.beat_at).total_seconds()
            is_working = silent_s < STALE_AFTER_S
        if is_working:
            raise StoreError(
                f"This study is being run already, on {other.host} (pid {other.pid}, since "
                f"{other.started_at:%Y-%m-%d %H:%M} UTC). Wait for it, end it with Ctrl-C, or "
                "start another study with --study NEW_NAME."
            )


def close_stale(connection: sa.Connection, study_id: int, at: datetime) -> None:
    """Ends what dispatchers that died have left open: their attempts are lost, devices free."""
    for dispatcher in _open_dispatchers(connection, study_id):
        open_attempts = sa.select(AttemptRow.id).where(
            AttemptRow.dispatcher_id == dispatcher.id, AttemptRow.state != AttemptState.FINISHED
        )
        attempts = connection.execute(open_attempts).scalars().all()
        lost = {
            "state": AttemptState.FINISHED,
            "outcome": Outcome.LOST,
            "cause": Cause.DISPATCHER_GONE,
            "detail": "Its dispatcher died.",
            "finished_at": as_stored(at),
        }
        connection.execute(sa.update(AttemptRow).where(AttemptRow.id.in_(attempts)).values(lost))
        # Not now: the time in which no dispatcher ran is not spent.
        last_seen = sa.case(
            (LeaseRow.leased_at > dispatcher.beat_at, LeaseRow.leased_at), else_=dispatcher.beat_at
        )
        released = sa.update(LeaseRow).where(
            LeaseRow.attempt_id.in_(attempts), LeaseRow.released_at.is_(None)
        )
        connection.execute(released.values(released_at=last_seen, held_device_id=None))
        ended = sa.update(DispatcherRow).where(DispatcherRow.id == dispatcher.id)
        connection.execute(ended.values(ended_at=DispatcherRow.beat_at))


def _open_dispatchers(connection: sa.Connection, study_id: int) -> Sequence[_OpenDispatcher]:
    query = (
        sa.select(
            DispatcherRow.id,
            HostRow.name,
            DispatcherRow.pid,
            DispatcherRow.process_created_at_s,
            DispatcherRow.started_at,
            DispatcherRow.beat_at,
        )
        .join(HostRow, HostRow.id == DispatcherRow.host_id)
        .where(DispatcherRow.study_id == study_id, DispatcherRow.ended_at.is_(None))
    )
    return [_OpenDispatcher(*row) for row in connection.execute(query)]


def past_use(connection: sa.Connection, study_id: int) -> PastUse:
    starts = sa.select(
        DispatcherRow.started_at, DispatcherRow.ended_at, DispatcherRow.beat_at
    ).where(DispatcherRow.study_id == study_id)
    time_s = sum(
        ((row.ended_at or row.beat_at) - row.started_at).total_seconds()
        for row in connection.execute(starts)
    )
    leases = (
        sa.select(LeaseRow.leased_at, LeaseRow.released_at, LeaseRow.share)
        .join(AttemptRow, AttemptRow.id == LeaseRow.attempt_id)
        .join(DispatcherRow, DispatcherRow.id == AttemptRow.dispatcher_id)
        .where(DispatcherRow.study_id == study_id, LeaseRow.released_at.is_not(None))
    )
    device_s = sum(
        (row.released_at - row.leased_at).total_seconds() * row.share
        for row in connection.execute(leases)
    )
    return PastUse(time_s=time_s, device_s=device_s)


def host_id_of(connection: sa.Connection, host: HostFacts) -> int:
    found = connection.execute(sa.select(HostRow.id).where(HostRow.name == host.name)).scalar()
    if found is not None:
        return found
    row = {"name": host.name, "n_cores": host.n_cores, "memory_bytes": host.memory_bytes}
    return insert_row(connection, sa.insert(table_of(HostRow)), row)


def device_id_of(connection: sa.Connection, host_id: int, device: Device) -> int:
    query = sa.select(DeviceRow.id).where(
        DeviceRow.host_id == host_id, DeviceRow.device == device.id
    )
    found = connection.execute(query).scalar()
    if found is not None:
        return found
    row = {
        "host_id": host_id,
        "device": device.id,
        "kind": device.kind,
        "number": device.index,
        "name": device.name,
        "memory_bytes": device.memory_bytes,
    }
    return insert_row(connection, sa.insert(table_of(DeviceRow)), row)


def insert_dispatcher(
    connection: sa.Connection, start: StartRecord, host_id: int, at: datetime
) -> int:
    row = {
        "study_id": start.study_id,
        "host_id": host_id,
        "pid": start.host.pid,
        "process_created_at_s": start.host.process_created_at_s,
        "started_at": as_stored(at),
        "beat_at": as_stored(at),
        "seed": start.seed,
        "study_file": start.study_file,
        "folder": start.folder,
        "versions": dict(start.versions),
        "git_commit": start.git.commit,
        "git_is_dirty": start.git.is_dirty,
    }
    return insert_row(connection, sa.insert(table_of(DispatcherRow)), row)
