"""Starts of the dispatcher: which work on a study now, which died, and what was spent so far."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import NamedTuple

import sqlalchemy as sa

from tuner.devices.device import Device
from tuner.domain.allocation import OwnAllocation
from tuner.domain.budget import Budget, EndedUses
from tuner.errors import StoreError
from tuner.host.process_identity import Life, ProcessIdentity, life_of
from tuner.store.connection.sql_seconds import seconds_between
from tuner.store.optuna_tables.statements import TRIALS
from tuner.store.records.allocations import begin_allocation
from tuner.store.records.provenance import GitState, HostFacts
from tuner.store.records.usage.energy import energy_kwh_of
from tuner.store.schema.models import (
    AttemptRow,
    DeviceRow,
    DispatcherRow,
    HostRow,
    LeaseRow,
    table_of,
)
from tuner.store.schema.statements import as_stored, find_or_insert, in_utc, insert_row


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
    #: None outside an engine.
    allocation: OwnAllocation | None = None
    #: `user@host`.
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastUse:
    """Spending of a study before this start."""

    time_s: float
    device_s: float
    energy_kwh: float = 0.0
    trials: EndedUses = field(default_factory=EndedUses)


class Sign(NamedTuple):
    """A sign of life of a dispatcher. An instant of its own clock, to be compared for equality."""

    dispatcher_id: int
    beat_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenDispatcher:
    """A start that has not ended according to the database."""

    id: int
    process: ProcessIdentity
    started_at: datetime
    beat_at: datetime

    @property
    def place(self) -> str:
        """Host and process, as text."""
        at = f"{self.started_at:%Y-%m-%d %H:%M} UTC"
        return f"{self.process.host} (pid {self.process.pid}, since {at})"

    @property
    def sign(self) -> Sign:
        return Sign(self.id, self.beat_at)

    def silent_s(self, at: datetime) -> float:
        """Seconds since its last sign of life, as two clocks have it: to be shown only."""
        return (in_utc(at) - self.beat_at).total_seconds()


def lock_study(connection: sa.Connection, study_id: int) -> None:
    """Serializes checks for live dispatchers of a study until the transaction ends."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        return
    studies = sa.table("studies", sa.column("study_id"))
    query = sa.select(studies.c.study_id).where(studies.c.study_id == study_id)
    connection.execute(query.with_for_update())


def refuse_living(
    connection: sa.Connection,
    here: ProcessIdentity,
    silent: Collection[Sign],
    refusal: str,
    *,
    study_id: int | None = None,
) -> None:
    """Refuses an operation while a dispatcher is or may be alive; works for any schema revision.

    Args:
        connection: In a transaction.
        here: This process.
        silent: Dispatchers that were watched for a minute without a heartbeat (`silence.py`).
        refusal: The message; `{place}` is the dispatcher's host and process.
        study_id: Id of the study; None for all of the database.

    Raises:
        StoreError: If there is such a dispatcher.
    """
    for one in open_dispatchers(connection, study_id):
        if one.sign not in silent and life_of(one.process, here=here) is not Life.GONE:
            raise StoreError(refusal.format(place=one.place))


def open_dispatchers(connection: sa.Connection, study_id: int | None) -> list[OpenDispatcher]:
    """Starts that have not ended, of one study or of all; of any schema revision."""
    query = (
        sa.select(
            DispatcherRow.id,
            HostRow.name,
            DispatcherRow.pid,
            DispatcherRow.versions,
            DispatcherRow.started_at,
            DispatcherRow.beat_at,
        )
        .join(HostRow, HostRow.id == DispatcherRow.host_id)
        .where(DispatcherRow.ended_at.is_(None))
        .order_by(DispatcherRow.id)
    )
    if study_id is not None:
        query = query.where(DispatcherRow.study_id == study_id)
    return [
        OpenDispatcher(
            id=row.id,
            process=process_of(row.name, row.pid, row.versions),
            started_at=row.started_at,
            beat_at=row.beat_at,
        )
        for row in connection.execute(query)
    ]


def process_of(host: str, pid: int, versions: object) -> ProcessIdentity:
    """The process of a dispatcher's record; records of older versions do not identify it."""
    facts = versions if isinstance(versions, Mapping) else {}
    return ProcessIdentity.from_facts(host, pid, facts)


def has_attempts(connection: sa.Connection, study_id: int) -> bool:
    """Whether any trial of a study was ever launched."""
    of_study = sa.select(TRIALS.c.trial_id).where(TRIALS.c.study_id == study_id)
    query = sa.select(AttemptRow.id).where(AttemptRow.trial_id.in_(of_study)).limit(1)
    return connection.execute(query).first() is not None


def count_starts(connection: sa.Connection, study_id: int) -> int:
    query = (
        sa.select(sa.func.count())
        .select_from(DispatcherRow)
        .where(DispatcherRow.study_id == study_id)
    )
    return int(connection.execute(query).scalar_one())


def past_use(connection: sa.Connection, study_id: int) -> PastUse:
    """Past use of a study's budget.

    A dispatcher counts from its first attempt, since it may wait for devices before, and up to its
    last heartbeat if it is alive or dead.
    """
    starts = (
        sa.select(
            sa.func.min(AttemptRow.leased_at).label("began_at"),
            DispatcherRow.ended_at,
            DispatcherRow.beat_at,
        )
        .join(AttemptRow, AttemptRow.dispatcher_id == DispatcherRow.id)
        .where(DispatcherRow.study_id == study_id)
        .group_by(DispatcherRow.id, DispatcherRow.ended_at, DispatcherRow.beat_at)
    )
    spans = [(row.began_at, row.ended_at or row.beat_at) for row in connection.execute(starts)]
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


def held_now_s(connection: sa.Connection, study_id: int) -> float:
    """Device-seconds of leases that are still held, to their dispatcher's last sign of life."""
    held_s = seconds_between(LeaseRow.leased_at, DispatcherRow.beat_at) * LeaseRow.share
    leases = (
        sa.select(sa.func.sum(held_s))
        .join(AttemptRow, AttemptRow.id == LeaseRow.attempt_id)
        .join(DispatcherRow, DispatcherRow.id == AttemptRow.dispatcher_id)
        .where(
            DispatcherRow.study_id == study_id,
            LeaseRow.released_at.is_(None),
            DispatcherRow.beat_at > LeaseRow.leased_at,
        )
    )
    return float(connection.execute(leases).scalar() or 0.0)


def covered_s(spans: Iterable[tuple[datetime, datetime]]) -> float:
    """Length of the union of time spans, in seconds: parallel dispatchers count once."""
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


def begin_own(
    connection: sa.Connection, start: StartRecord, n_devices: int, at: datetime
) -> int | None:
    """The row of the allocation in which a dispatcher starts; None outside of one."""
    if start.allocation is None:
        return None
    return begin_allocation(
        connection,
        start.study_id,
        start.allocation,
        node=start.host.name,
        n_devices=n_devices,
        by=start.by,
        at=at,
    )


def insert_dispatcher(
    connection: sa.Connection,
    start: StartRecord,
    host_id: int,
    at: datetime,
    devices: Sequence[str] = (),
    budget: Budget | None = None,
    allocation_id: int | None = None,
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
        "versions": {**start.versions, **start.host.process.facts()},
        "git_commit": start.git.commit,
        "git_is_dirty": start.git.is_dirty,
        "devices": list(devices),
        "budget": None if budget is None else asdict(budget),
        "allocation_id": allocation_id,
    }
    return insert_row(connection, sa.insert(table_of(DispatcherRow)), row)
