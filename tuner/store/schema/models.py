"""The tuner's own tables, next to Optuna's in the same database.

Optuna's tables are the truth about studies and trials. These hold the rest: which host and
dispatcher worked on a study, each attempt with its state, the devices it held, events, and metrics
other than the objectives. All times are UTC without a time zone, as in Optuna's tables.
"""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import ClassVar, TypeVar

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from tuner.devices.device import DeviceKind
from tuner.devices.idle_causes import IdleCause
from tuner.domain.allocation import AllocationState
from tuner.domain.attempt import AttemptState, Cause, Outcome
from tuner.store.schema.column_types import PlainJson, PlainText, instant

#: Revision of these tables, stored in `tuner_alembic_version` (Optuna has its own table). A change
#: of a table needs a migration; `tests/contract/store/test_schema.py` compares the two.
SCHEMA_REVISION = "0011"
VERSION_TABLE = "tuner_alembic_version"

#: Small rows with a key of several parts: SQLite needs no second tree to find them.
NO_ROWID = {"sqlite_with_rowid": False}

E = TypeVar("E", bound=Enum)


def _enum(kind: type[E]) -> sa.Enum:
    """An enum stored by value, with a CHECK constraint against invalid states."""
    return sa.Enum(
        kind,
        values_callable=lambda members: [member.value for member in members],
        native_enum=False,
        create_constraint=True,
        length=32,
        name=f"ck_{kind.__name__.lower()}",
    )


class TunerBase(DeclarativeBase):
    """Base of the tuner's tables."""

    # SQLAlchemy 2.0 would make a float single on MySQL: an instant to the nearest two minutes.
    type_annotation_map: ClassVar = {datetime: instant(), float: sa.Double()}


def table_of(row: type[TunerBase]) -> sa.Table:
    """The table itself, for statements that are executed often."""
    return TunerBase.metadata.tables[row.__tablename__]


class HostRow(TunerBase):
    """A machine that has worked on a study of this database."""

    __tablename__ = "tuner_hosts"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(sa.String(255), unique=True)
    n_cores: Mapped[int]
    memory_bytes: Mapped[int] = mapped_column(sa.BigInteger)


class DeviceRow(TunerBase):
    """A device of a host."""

    __tablename__ = "tuner_devices"
    __table_args__ = (sa.UniqueConstraint("host_id", "device"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    host_id: Mapped[int] = mapped_column(sa.ForeignKey("tuner_hosts.id"))
    #: `GPU-<uuid>`, `MIG-<uuid>` or `cpu:<slot>`.
    device: Mapped[str] = mapped_column(sa.String(128))
    kind: Mapped[DeviceKind] = mapped_column(_enum(DeviceKind))
    number: Mapped[int]
    name: Mapped[str] = mapped_column(sa.String(128))
    memory_bytes: Mapped[int | None] = mapped_column(sa.BigInteger)


class AllocationRow(TunerBase):
    """An allocation: a node that an engine provides to a study for a time."""

    __tablename__ = "tuner_allocations"
    __table_args__ = (sa.UniqueConstraint("study_id", "number"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    study_id: Mapped[int] = mapped_column(sa.ForeignKey("studies.study_id", ondelete="CASCADE"))
    #: Counts from 0 within the study, over all engines.
    number: Mapped[int]
    engine: Mapped[str] = mapped_column(sa.String(32))
    #: The engine's own, such as `4711_3`.
    name: Mapped[str] = mapped_column(sa.String(255))
    #: As of the engine's last report, or the dispatcher's last write.
    state: Mapped[AllocationState] = mapped_column(_enum(AllocationState))
    #: The engine's own words.
    reason: Mapped[str] = mapped_column(PlainText, default="")
    node: Mapped[str | None] = mapped_column(sa.String(255))
    n_devices: Mapped[int]
    #: `user@host`.
    submitted_by: Mapped[str] = mapped_column(sa.String(255))
    submitted_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    deadline: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]


class DispatcherRow(TunerBase):
    """One start of `python -m tuner.run`, with the data needed to reproduce it."""

    __tablename__ = "tuner_dispatchers"

    id: Mapped[int] = mapped_column(primary_key=True)
    study_id: Mapped[int] = mapped_column(
        sa.ForeignKey("studies.study_id", ondelete="CASCADE"), index=True
    )
    host_id: Mapped[int] = mapped_column(sa.ForeignKey("tuner_hosts.id"))
    pid: Mapped[int]
    #: Seconds since the epoch, as the machine's clock was set: for the record.
    process_created_at_s: Mapped[float]
    started_at: Mapped[datetime]
    beat_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]
    #: Why it ended, as text; empty while it runs, and if it died.
    end_reason: Mapped[str] = mapped_column(
        sa.String(255), default="", server_default=sa.text("''")
    )
    #: Number of its last batch of changes.
    n_batches: Mapped[int] = mapped_column(default=0, server_default=sa.text("0"))
    seed: Mapped[int] = mapped_column(sa.BigInteger)
    study_file: Mapped[str] = mapped_column(PlainText)
    folder: Mapped[str] = mapped_column(PlainText)
    #: Versions of packages, and `ProcessIdentity.facts`, which identify its process.
    versions: Mapped[dict[str, str]] = mapped_column(PlainJson)
    git_commit: Mapped[str | None] = mapped_column(sa.String(64))
    #: Whether the working tree differed from that commit.
    git_is_dirty: Mapped[bool | None]
    #: Names of those that it has, as of its last sign of life; None from older tuners.
    devices: Mapped[list[str] | None] = mapped_column(PlainJson)
    #: The study's budget as known to the dispatcher, including flags and `tuner set`; None in rows
    #: of older versions.
    budget: Mapped[dict[str, float | None] | None] = mapped_column(PlainJson)
    #: The allocation in which it runs; None outside an engine.
    allocation_id: Mapped[int | None] = mapped_column(sa.ForeignKey("tuner_allocations.id"))


class AttemptRow(TunerBase):
    """One launch of a trial."""

    __tablename__ = "tuner_attempts"
    __table_args__ = (sa.UniqueConstraint("trial_id", "number"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    dispatcher_id: Mapped[int] = mapped_column(
        sa.ForeignKey("tuner_dispatchers.id", ondelete="CASCADE"), index=True
    )
    trial_id: Mapped[int] = mapped_column(sa.ForeignKey("trials.trial_id", ondelete="CASCADE"))
    number: Mapped[int]
    state: Mapped[AttemptState] = mapped_column(_enum(AttemptState), index=True)
    outcome: Mapped[Outcome | None] = mapped_column(_enum(Outcome))
    cause: Mapped[Cause | None] = mapped_column(_enum(Cause))
    #: The reason, the traceback, or the last lines of output, as text.
    detail: Mapped[str] = mapped_column(PlainText, default="")
    params: Mapped[dict[str, object]] = mapped_column(PlainJson)
    seed: Mapped[int] = mapped_column(sa.BigInteger)
    #: Process id of its first rank.
    pid: Mapped[int | None]
    #: Highest memory use seen on any one GPU, in bytes; None if unknown.
    peak_memory_bytes: Mapped[int | None] = mapped_column(sa.BigInteger)
    log_path: Mapped[str] = mapped_column(PlainText)
    leased_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]


class ClaimRow(TunerBase):
    """A trial that a dispatcher has started or prefetched: no other process runs it."""

    __tablename__ = "tuner_claims"

    trial_id: Mapped[int] = mapped_column(
        sa.ForeignKey("trials.trial_id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    dispatcher_id: Mapped[int] = mapped_column(
        sa.ForeignKey("tuner_dispatchers.id", ondelete="CASCADE"), index=True
    )


class LeaseRow(TunerBase):
    """A device, or a share of one, that an attempt holds until it is free again."""

    __tablename__ = "tuner_leases"
    __table_args__ = (
        sa.UniqueConstraint("held_device_id", "held_slot", name="uq_tuner_leases_held"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    attempt_id: Mapped[int] = mapped_column(
        sa.ForeignKey("tuner_attempts.id", ondelete="CASCADE"), index=True
    )
    device_id: Mapped[int] = mapped_column(sa.ForeignKey("tuner_devices.id"))
    #: The device while it is held exclusively (a GPU), else None: unique, so that no device is
    #: leased twice, whatever the programs do. CPU slots belong to one dispatcher.
    held_device_id: Mapped[int | None]
    #: 0 for a whole device; the attempts that share one are numbered from 0.
    held_slot: Mapped[int] = mapped_column(default=0, server_default=sa.text("0"))
    #: Share of the device, above 0 and at most 1.
    share: Mapped[float] = mapped_column(default=1.0, server_default=sa.text("1"))
    leased_at: Mapped[datetime]
    released_at: Mapped[datetime | None]


class CheckpointRow(TunerBase):
    """A state of a trial that is on disk, as far as its dispatcher has seen."""

    __tablename__ = "tuner_checkpoints"

    id: Mapped[int] = mapped_column(primary_key=True)
    trial_id: Mapped[int] = mapped_column(
        sa.ForeignKey("trials.trial_id", ondelete="CASCADE"), index=True
    )
    attempt_id: Mapped[int] = mapped_column(
        sa.ForeignKey("tuner_attempts.id", ondelete="CASCADE"), index=True
    )
    step: Mapped[int] = mapped_column(sa.BigInteger)
    #: On the attempt's host; a file, or a folder that several ranks wrote.
    path: Mapped[str] = mapped_column(PlainText)
    size_bytes: Mapped[int] = mapped_column(sa.BigInteger)
    saved_at: Mapped[datetime]


class UploadKind(Enum):
    """Kinds of objects in an object store."""

    CHECKPOINT = "checkpoint"
    #: A checkpoint reserved for the trial that replaces this row's trial.
    HANDED_ON = "handed_on"
    LOG = "log"


class UploadRow(TunerBase):
    """A checkpoint or log that an object store has acknowledged. Several may share an object."""

    __tablename__ = "tuner_uploads"

    id: Mapped[int] = mapped_column(primary_key=True)
    trial_id: Mapped[int] = mapped_column(
        sa.ForeignKey("trials.trial_id", ondelete="CASCADE"), index=True
    )
    #: The attempt that saved it; of a copy's checkpoint it is one of another trial.
    attempt_id: Mapped[int] = mapped_column(
        sa.ForeignKey("tuner_attempts.id", ondelete="CASCADE"), index=True
    )
    kind: Mapped[UploadKind] = mapped_column(_enum(UploadKind))
    #: Step of a checkpoint; 0 for a log.
    step: Mapped[int] = mapped_column(sa.BigInteger)
    #: Name of the file or folder on disk, such as `step-9.pt`.
    name: Mapped[str] = mapped_column(sa.String(255))
    #: Such as `s3://bucket/prefix/...`.
    uri: Mapped[str] = mapped_column(PlainText)
    size_bytes: Mapped[int] = mapped_column(sa.BigInteger)
    saved_at: Mapped[datetime]
    #: Its object is to be removed if no other row has it.
    removed_at: Mapped[datetime | None]


class CommandRow(TunerBase):
    """A command to a study's dispatchers, from any terminal."""

    __tablename__ = "tuner_commands"

    id: Mapped[int] = mapped_column(primary_key=True)
    study_id: Mapped[int] = mapped_column(
        sa.ForeignKey("studies.study_id", ondelete="CASCADE"), index=True
    )
    #: `pause`, `resume`, `stop`, `set`, `retry`.
    name: Mapped[str] = mapped_column(sa.String(32))
    #: Number of its trial; None for the whole study.
    trial_number: Mapped[int | None]
    arguments: Mapped[dict[str, object]] = mapped_column(PlainJson)
    #: `user@host`.
    asked_by: Mapped[str] = mapped_column(sa.String(255))
    asked_at: Mapped[datetime]


class EventRow(TunerBase):
    """Something that happened to an attempt, or to the dispatcher itself."""

    __tablename__ = "tuner_events"

    id: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[datetime]
    dispatcher_id: Mapped[int] = mapped_column(
        sa.ForeignKey("tuner_dispatchers.id", ondelete="CASCADE"), index=True
    )
    attempt_id: Mapped[int | None] = mapped_column(
        sa.ForeignKey("tuner_attempts.id", ondelete="CASCADE"), index=True
    )
    name: Mapped[str] = mapped_column(sa.String(64))
    detail: Mapped[str] = mapped_column(PlainText, default="")


class MetricRow(TunerBase):
    """One value of a metric other than the objectives, which are in Optuna's tables."""

    __tablename__ = "tuner_metrics"

    id: Mapped[int] = mapped_column(primary_key=True)
    attempt_id: Mapped[int] = mapped_column(
        sa.ForeignKey("tuner_attempts.id", ondelete="CASCADE"), index=True
    )
    step: Mapped[int]
    name: Mapped[str] = mapped_column(sa.String(255))
    #: None if the program reported NaN or infinity, which not every database can store.
    value: Mapped[float | None] = mapped_column(sa.Float(precision=53))


class UsageRow(TunerBase):
    """Usage of a device in some seconds, as sums and maxima (`tuner.devices.usage.tally`)."""

    __tablename__ = "tuner_usage"
    __table_args__ = NO_ROWID

    dispatcher_id: Mapped[int] = mapped_column(
        sa.ForeignKey("tuner_dispatchers.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    )
    #: 1; older samples are rolled up to 10, and then to 60.
    span_s: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    #: Since the epoch, a multiple of `span_s`.
    start_s: Mapped[int] = mapped_column(sa.BigInteger, primary_key=True, autoincrement=False)
    device_id: Mapped[int] = mapped_column(
        sa.ForeignKey("tuner_devices.id"), primary_key=True, autoincrement=False
    )
    #: Milliseconds of the span that are covered by readings.
    covered_ms: Mapped[int]
    utilization_pct_ms: Mapped[int | None] = mapped_column(sa.BigInteger)
    utilization_max_pct: Mapped[int | None]
    memory_mib_ms: Mapped[int | None] = mapped_column(sa.BigInteger)
    memory_max_mib: Mapped[int | None]
    energy_mj: Mapped[int | None] = mapped_column(sa.BigInteger)
    power_max_mw: Mapped[int | None]
    temperature_c_ms: Mapped[int | None] = mapped_column(sa.BigInteger)
    temperature_max_c: Mapped[int | None]
    sm_clock_mhz_ms: Mapped[int | None] = mapped_column(sa.BigInteger)
    memory_clock_mhz_ms: Mapped[int | None] = mapped_column(sa.BigInteger)
    pcie_rx_kib: Mapped[int | None] = mapped_column(sa.BigInteger)
    pcie_tx_kib: Mapped[int | None] = mapped_column(sa.BigInteger)
    nvlink_rx_kib: Mapped[int | None] = mapped_column(sa.BigInteger)
    nvlink_tx_kib: Mapped[int | None] = mapped_column(sa.BigInteger)


class AttemptUsageRow(TunerBase):
    """Usage of a device by an attempt so far, as sums and maxima."""

    __tablename__ = "tuner_attempt_usage"
    __table_args__ = NO_ROWID

    attempt_id: Mapped[int] = mapped_column(
        sa.ForeignKey("tuner_attempts.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    )
    device_id: Mapped[int] = mapped_column(
        sa.ForeignKey("tuner_devices.id"), primary_key=True, autoincrement=False
    )
    covered_ms: Mapped[int] = mapped_column(sa.BigInteger)
    utilization_pct_ms: Mapped[int | None] = mapped_column(sa.BigInteger)
    utilization_max_pct: Mapped[int | None]
    memory_mib_ms: Mapped[int | None] = mapped_column(sa.BigInteger)
    memory_max_mib: Mapped[int | None]
    energy_mj: Mapped[int | None] = mapped_column(sa.BigInteger)


class IdleRow(TunerBase):
    """A time in which a device of a dispatcher had no trial, and why."""

    __tablename__ = "tuner_idle"
    __table_args__ = NO_ROWID

    dispatcher_id: Mapped[int] = mapped_column(
        sa.ForeignKey("tuner_dispatchers.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    )
    device_id: Mapped[int] = mapped_column(
        sa.ForeignKey("tuner_devices.id"), primary_key=True, autoincrement=False
    )
    began_at: Mapped[datetime] = mapped_column(primary_key=True)
    #: Until when that is known; while it lasts it is written again and again.
    ended_at: Mapped[datetime]
    cause: Mapped[IdleCause] = mapped_column(_enum(IdleCause))
