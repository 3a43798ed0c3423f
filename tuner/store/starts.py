"""Starts of the dispatcher: who works on a study now, who died, and what was spent so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import NamedTuple

import sqlalchemy as sa

from tuner.budget import Budget, TrialUse
from tuner.devices.device import Device
from tuner.errors import StoreError
from tuner.provenance import GitState, HostFacts, is_alive
from tuner.store.energy import energy_kwh_of
from tuner.store.models import (
    AttemptRow,
    DeviceRow,
    DispatcherRow,
    HostRow,
    LeaseRow,
    table_of,
)
from tuner.store.rows import as_stored, find_or_insert, in_utc, insert_row
from tuner.store.seconds import seconds_between

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
    energy_kwh: float = 0.0
    #: Of each of the newest completed trials.
    trials: Sequence[TrialUse] = ()


class OpenDispatcher(NamedTuple):
    """A start that has not ended, as far as the database knows."""

    id: int
    host: str
    pid: int
    process_created_at_s: float
    started_at: datetime
    beat_at: datetime

    @property
    def place(self) -> str:
        """For people."""
        return f"{self.host} (pid {self.pid}, since {self.started_at:%Y-%m-%d %H:%M} UTC)"

    def is_working(self, host: str, at: datetime) -> bool:
        """As it looks from a host."""
        if self.host == host:
            return is_alive(self.pid, self.process_created_at_s)
        return self.silent_s(at) < STALE_AFTER_S

    def silent_s(self, at: datetime) -> float:
        """Seconds since its last sign of life."""
        return (in_utc(at) - self.beat_at).total_seconds()


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
    other = living_dispatcher(connection, start.host.name, at, study_id=start.study_id)
    if other is not None:
        raise StoreError(
            f"This study is being run already, on {other.place}. Wait for it, end it with Ctrl-C, "
            "or start another study with --study NEW_NAME."
        )


def living_dispatcher(
    connection: sa.Connection, host: str, at: datetime, *, study_id: int | None = None
) -> OpenDispatcher | None:
    """Who works on a study, or on any study of the database; of any schema revision."""
    found = open_dispatchers(connection, study_id)
    return next((one for one in found if one.is_working(host, at)), None)


def open_dispatchers(connection: sa.Connection, study_id: int | None) -> Sequence[OpenDispatcher]:
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
        .where(DispatcherRow.ended_at.is_(None))
    )
    if study_id is not None:
        query = query.where(DispatcherRow.study_id == study_id)
    return [OpenDispatcher(*row) for row in connection.execute(query)]


def count_starts(connection: sa.Connection, study_id: int) -> int:
    query = (
        sa.select(sa.func.count())
        .select_from(DispatcherRow)
        .where(DispatcherRow.study_id == study_id)
    )
    return int(connection.execute(query).scalar_one())


def past_use(connection: sa.Connection, study_id: int) -> PastUse:
    """Of a dispatcher that works now, or died, its time counts to its last sign of life."""
    starts = sa.select(
        DispatcherRow.started_at, DispatcherRow.ended_at, DispatcherRow.beat_at
    ).where(DispatcherRow.study_id == study_id)
    spans = [(row.started_at, row.ended_at or row.beat_at) for row in connection.execute(starts)]
    held_s = seconds_between(LeaseRow.leased_at, LeaseRow.released_at) * LeaseRow.share
    leases = (
        sa.select(sa.func.sum(held_s))
        .join(AttemptRow, AttemptRow.id == LeaseRow.attempt_id)
        .join(DispatcherRow, DispatcherRow.id == AttemptRow.dispatcher_id)
        .where(DispatcherRow.study_id == study_id, LeaseRow.released_at.is_not(None))
    )
    device_s = connection.execute(leases).scalar() or 0.0
    return PastUse(
        time_s=covered_s(spans),
        device_s=float(device_s),
        energy_kwh=energy_kwh_of(connection, study_id),
    )


def covered_s(spans: Iterable[tuple[datetime, datetime]]) -> float:
    """Seconds that lie in any of some spans: those who work side by side take no more time."""
    total_s, covered_to = 0.0, datetime.min
    for begin, end in sorted(spans):
        begin = max(begin, covered_to)
        if end > begin:
            total_s += (end - begin).total_seconds()
            covered_to = end
    return total_s


def host_id_of(connection: sa.Connection, host: HostFacts) -> int:
    row = {"name": host.name, "n_cores": host.n_cores, "memory_bytes": host.memory_bytes}
    query = sa.select(HostRow.id).where(HostRow.name == host.name)
    return find_or_insert(connection, query, sa.insert(table_of(HostRow)), row)


def device_id_of(connection: sa.Connection, host_id: int, device: Device) -> int:
    row = {
        "host_id": host_id,
        "device": device.id,
        "kind": device.kind,
        "number": device.index,
        "name": device.name,
        "memory_bytes": device.memory_bytes,
    }
    query = sa.select(DeviceRow.id).where(
        DeviceRow.host_id == host_id, DeviceRow.device == device.id
    )
    return find_or_insert(connection, query, sa.insert(table_of(DeviceRow)), row)


def insert_dispatcher(
    connection: sa.Connection,
    start: StartRecord,
    host_id: int,
    at: datetime,
    devices: Sequence[str] = (),
    budget: Budget | None = None,
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
        "devices": list(devices),
        "budget": None if budget is None else asdict(budget),
    }
    return insert_row(connection, sa.insert(table_of(DispatcherRow)), row)
