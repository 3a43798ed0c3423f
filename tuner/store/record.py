"""Writes what the dispatcher does: attempts, leases, events, metrics, in few transactions.

Changes are collected and committed together with Optuna's pending rows, so that both tell the
same story. A change of state is a compare-and-set plus an event, in one transaction.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import sqlalchemy as sa

from tuner.attempt import Attempt, AttemptId, AttemptState
from tuner.clock import Clock
from tuner.devices.device import Device, DeviceKind
from tuner.devices.pool import Lease
from tuner.devices.width import WHOLE
from tuner.errors import EXIT_STUDY_FAILED, StoreError
from tuner.messages import Json
from tuner.store.buffered_storage import MOST_WAITING
from tuner.store.commands import Commands
from tuner.store.database import Database, store_errors
from tuner.store.fleet import Fleet, clear_up
from tuner.store.models import (
    AttemptRow,
    DispatcherRow,
    EventRow,
    LeaseRow,
    MetricRow,
    table_of,
)
from tuner.store.optuna_rows import PendingRows
from tuner.store.ownership import Ownership
from tuner.store.rows import as_stored, insert_row
from tuner.store.starts import (
    StartRecord,
    count_starts,
    device_id_of,
    host_id_of,
    insert_dispatcher,
    lock_study,
    past_use,
    refuse_second_dispatcher,
)

# Made once, on the tables and not on the mapped classes: they are executed for every trial, and
# building a statement anew costs more than SQLite needs to carry it out.
_ATTEMPTS = table_of(AttemptRow)
_LEASES = table_of(LeaseRow)
_INSERT_ATTEMPT = sa.insert(_ATTEMPTS)
_INSERT_LEASE = sa.insert(_LEASES)
_INSERT_EVENT = sa.insert(table_of(EventRow))
_INSERT_METRIC = sa.insert(table_of(MetricRow))
_COLUMNS_MOVED = ("state", "pid", "started_at", "ended_at", "finished_at")
_COLUMNS_ENDED = (
    *_COLUMNS_MOVED,
    "outcome",
    "cause",
    "detail",
    "params",
    "peak_memory_bytes",
)


def _move(columns: Sequence[str]) -> sa.Update:
    """Compare and set: nothing is changed where the state is another one by now."""
    return (
        sa.update(_ATTEMPTS)
        .where(
            _ATTEMPTS.c.id == sa.bindparam("b_id"),
            _ATTEMPTS.c.state == sa.bindparam("b_state", type_=_ATTEMPTS.c.state.type),
        )
        .values({name: sa.bindparam(f"n_{name}", type_=_ATTEMPTS.c[name].type) for name in columns})
    )


#: By whether the attempt has come to its end with this move.
_MOVE = {False: _move(_COLUMNS_MOVED), True: _move(_COLUMNS_ENDED)}
_RELEASE = (
    sa.update(_LEASES)
    .where(_LEASES.c.attempt_id == sa.bindparam("b_id"))
    .values(released_at=sa.bindparam("b_released_at"), held_device_id=None)
)

Write = Callable[[sa.Connection], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """Changes of one transaction. It is the same one however often it is tried."""

    number: int
    optuna_rows: PendingRows
    writes: Sequence[Write]
    metrics: Sequence[Mapping[str, object]]

    @property
    def n_reports(self) -> int:
        return len(self.optuna_rows.curves) + len(self.metrics)


class Recorder:
    """Writes for one dispatcher. Nothing is in the database before `commit`.

    Args:
        database: An open one.
        start: Who writes, and what for.
        devices: What this dispatcher may lease.
        clock: The time.
        n_trials: How many trials the study may have, whoever runs them; None for any number.

    Raises:
        StoreError: If another dispatcher that is alive works on the study.
    """

    def __init__(
        self,
        database: Database,
        start: StartRecord,
        devices: Sequence[Device],
        *,
        clock: Clock,
        n_trials: int | None = None,
    ) -> None:
        at = clock.now().utc
        self._database = database
        self._rows: dict[AttemptId, int] = {}
        self._states: dict[AttemptId, AttemptState] = {}
        self._writes: list[Write] = []
        self._metrics: list[dict[str, object]] = []
        self._n_dropped = 0
        #: Who has which slot of a device.
        self._slots: dict[tuple[int, int], AttemptId] = {}
        with self._errors():
            database.access.run(lambda c: self._begin(c, start, devices, at))
        self._ownership = Ownership(self._dispatcher_id, start.study_id, n_trials, clock)
        #: One that was begun to be written, and may be in the database.
        self._taken: _Batch | None = None
        self._n_batches = 0
        database.storage.write_for(self._ownership, self.commit)
        self.commands = Commands(database.access, start.study_id)
        self.fleet = Fleet(
            database,
            start.study_id,
            start.host.name,
            self._dispatcher_id,
            device_s_elsewhere=self.past.device_s,
        )

    def _begin(
        self, connection: sa.Connection, start: StartRecord, devices: Sequence[Device], at: datetime
    ) -> None:
        lock_study(connection, start.study_id)
        if connection.dialect.name == "sqlite":
            refuse_second_dispatcher(connection, start, at)
        clear_up(connection, start, at)
        self.past = past_use(connection, start.study_id)
        host_id = host_id_of(connection, start.host)
        self._device_ids = {
            device.id: device_id_of(connection, host_id, device) for device in devices
        }
        #: How many dispatchers have begun to work on the study before this one.
        self.n_earlier_starts = count_starts(connection, start.study_id)
        self._dispatcher_id = insert_dispatcher(connection, start, host_id, at)

    @property
    def has_pending(self) -> bool:
        return bool(
            self._taken or self._writes or self._metrics or self._database.storage.has_pending
        )

    @property
    def is_reachable(self) -> bool:
        """Whether the database has answered last time, or would by now."""
        return self._database.access.is_open

    @property
    def n_waiting_reports(self) -> int:
        """Values that were reported and are not in the database, as far as this object knows."""
        taken = self._taken.n_reports if self._taken else 0
        return taken + self._database.storage.n_pending_reports + len(self._metrics)

    @property
    def n_dropped_reports(self) -> int:
        """Values that were not kept, because too many waited."""
        return self._n_dropped + self._database.storage.n_dropped_reports

    def lease(
        self,
        attempt: Attempt,
        lease: Lease,
        *,
        params: Mapping[str, Json],
        log_path: str,
    ) -> None:
        """The intent, to be committed before anything is started."""
        row = {
            "dispatcher_id": self._dispatcher_id,
            "trial_id": attempt.trial_id,
            "number": attempt.number,
            "state": attempt.state,
            "detail": "",
            "params": dict(params),
            "seed": attempt.seed,
            "log_path": log_path,
            "leased_at": as_stored(attempt.leased_at),
        }
        held = [
            {
                "device_id": self._device_ids[device.id],
                "held_device_id": None if device.kind is DeviceKind.CPU else device_id,
                "held_slot": self._take_slot(device_id, attempt.id, is_whole=lease.is_whole),
                "share": lease.parts / WHOLE,
                "leased_at": as_stored(attempt.leased_at),
            }
            for device in lease.devices
            if (device_id := self._device_ids[device.id])
        ]
        labels = ", ".join(device.label for device in lease.devices)

        def write(connection: sa.Connection) -> None:
            row_id = insert_row(connection, _INSERT_ATTEMPT, row)
            self._rows[attempt.id] = row_id
            connection.execute(_INSERT_LEASE, [{"attempt_id": row_id, **each} for each in held])
            self._event(connection, "leased", attempt.leased_at, attempt.id, labels)

        self._states[attempt.id] = attempt.state
        self._writes.append(write)

    def moved(
        self, attempt: Attempt, *, at: datetime, params: Mapping[str, Json] | None = None
    ) -> None:
        """An attempt came into its present state; `params` are those it turned out to have."""
        before = self._states[attempt.id]
        self._states[attempt.id] = attempt.state
        ending = attempt.ending
        change: dict[str, object] = {
            "state": attempt.state,
            "pid": attempt.pid,
            "started_at": as_stored(attempt.started_at),
            "ended_at": as_stored(attempt.ended_at),
            "finished_at": as_stored(attempt.finished_at),
        }
        is_end = ending is not None and params is not None
        if ending is not None and params is not None:
            change |= {
                "outcome": ending.outcome,
                "cause": ending.cause,
                "detail": ending.detail,
                "params": dict(params),
                "peak_memory_bytes": attempt.peak_memory_bytes,
            }
        detail = ending.outcome.value if ending else ""

        def write(connection: sa.Connection) -> None:
            row_id = self._rows[attempt.id]
            new = {f"n_{name}": value for name, value in change.items()}
            guard = {"b_id": row_id, "b_state": before}
            if connection.execute(_MOVE[is_end], {**new, **guard}).rowcount != 1:
                raise StoreError(
                    f"{attempt} was taken over by another dispatcher; this one writes no more.",
                    exit_code=EXIT_STUDY_FAILED,
                )
            self._event(connection, attempt.state.value, at, attempt.id, detail)
            if attempt.state is AttemptState.FINISHED:
                freed_at = as_stored(attempt.finished_at)
                connection.execute(_RELEASE, {"b_id": row_id, "b_released_at": freed_at})

        self._writes.append(write)
        if attempt.state is AttemptState.FINISHED:
            del self._states[attempt.id]
            self._slots = {at: owner for at, owner in self._slots.items() if owner != attempt.id}

    def metrics(self, attempt_id: AttemptId, step: int, values: Mapping[str, float]) -> None:
        """Curves beside the objective's. Written with the next commit."""
        for name, value in values.items():
            if len(self._metrics) >= MOST_WAITING:
                self._n_dropped += 1
                continue
            self._metrics.append(
                {
                    "attempt": attempt_id,
                    "step": step,
                    "name": name,
                    "value": value if math.isfinite(value) else None,
                }
            )

    def note(self, name: str, *, at: datetime, detail: str = "") -> None:
        """Something that happened to the dispatcher itself."""
        self._writes.append(lambda connection: self._event(connection, name, at, None, detail))

    def allow(self, n_trials: int | None) -> None:
        """From now on the study may have so many trials, whoever runs them."""
        self._ownership.n_trials = n_trials

    def beat(self, at: datetime) -> None:
        """Shows others that this dispatcher is alive."""
        self._change_dispatcher(beat_at=as_stored(at))

    def end(self, at: datetime, reason: str = "") -> None:
        """This dispatcher works on the study no more."""
        ended_at = as_stored(at)
        self._change_dispatcher(beat_at=ended_at, ended_at=ended_at, end_reason=reason[:255])

    def commit(self) -> None:
        """Writes everything that was collected, in one transaction.

        Raises:
            Unavailable: If the database does not answer now; nothing is forgotten then.
            StoreError: If the database refuses; nothing is written then.
        """
        while self.has_pending:
            self._taken = batch = self._taken or self._take()
            with self._errors():
                self._database.access.run(partial(self._write, batch))
            self._n_batches = batch.number
            self._taken = None
            self._database.storage.forget_taken()

    def give_up_all_but(self, trial_ids: Collection[int]) -> None:
        """After an accident: lets trials wait that this dispatcher has and knows nothing of."""
        with self._errors():
            self._database.storage.give_up_all_but(self._ownership.study_id, trial_ids)

    def _take(self) -> _Batch:
        """What is collected from now on belongs to the next batch."""
        batch = _Batch(
            number=self._n_batches + 1,
            optuna_rows=self._database.storage.take_pending(),
            writes=self._writes,
            metrics=self._metrics,
        )
        self._writes, self._metrics = [], []
        return batch

    def _write(self, batch: _Batch, connection: sa.Connection) -> None:
        if not self._ownership.begin_batch(connection, batch.number):
            return
        batch.optuna_rows.write(connection)
        for write in batch.writes:
            write(connection)
        if batch.metrics:
            connection.execute(_INSERT_METRIC, self._metric_rows(batch.metrics))

    def attempts_of(self, trial_id: int) -> int:
        """How many attempts a trial has had, by any dispatcher."""
        query = sa.select(sa.func.max(AttemptRow.number)).where(AttemptRow.trial_id == trial_id)
        with self._errors():
            return self._database.access.run(lambda c: int(c.execute(query).scalar() or 0))

    def _take_slot(self, device_id: int, attempt_id: AttemptId, *, is_whole: bool) -> int:
        # Who has all of a device is refused by the database where anybody has a part of it.
        free = (slot for slot in itertools.count() if (device_id, slot) not in self._slots)
        slot = 0 if is_whole else next(free)
        self._slots[device_id, slot] = attempt_id
        return slot

    def _metric_rows(self, metrics: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
        return [
            {
                "attempt_id": self._rows[AttemptId(str(row["attempt"]))],
                "step": row["step"],
                "name": row["name"],
                "value": row["value"],
            }
            for row in metrics
        ]

    def _event(
        self,
        connection: sa.Connection,
        name: str,
        at: datetime,
        attempt_id: AttemptId | None,
        detail: str,
    ) -> None:
        row = {
            "at": as_stored(at),
            "dispatcher_id": self._dispatcher_id,
            "attempt_id": None if attempt_id is None else self._rows[attempt_id],
            "name": name,
            "detail": detail,
        }
        connection.execute(_INSERT_EVENT, row)

    def _change_dispatcher(self, **change: datetime | str | None) -> None:
        update = sa.update(DispatcherRow).where(DispatcherRow.id == self._dispatcher_id)
        self._writes.append(lambda connection: connection.execute(update.values(change)))

    def _errors(self) -> AbstractContextManager[None]:
        return store_errors(self._database.shown_url)
