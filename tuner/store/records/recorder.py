"""Records the dispatcher's actions: attempts, leases, events and metrics, in few transactions.

Changes are buffered and committed together with Optuna's pending rows, so that both are consistent.
A state change is a compare-and-set plus an event, in one transaction.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

import sqlalchemy as sa

from tuner.checkpoints.scan import SavedState
from tuner.devices.allocation.pool import Lease
from tuner.devices.allocation.width import WHOLE
from tuner.devices.device import Device, DeviceId, DeviceKind
from tuner.domain.attempt import Attempt, AttemptId, AttemptState
from tuner.domain.budget import Budget
from tuner.domain.messages import Json
from tuner.host.clock import Clock
from tuner.store.connection.database import Database, store_errors
from tuner.store.optuna_tables.storage import MOST_WAITING
from tuner.store.records.attempt_rows import AttemptRows, Row, RowIds
from tuner.store.records.batch import Batch
from tuner.store.records.broken_program import try_failed_again
from tuner.store.records.checkpoint_rows import CheckpointRows
from tuner.store.records.commands import Commands
from tuner.store.records.dispatchers.ownership import Ownership
from tuner.store.records.dispatchers.peers import Fleet
from tuner.store.records.dispatchers.starts import (
    Sign,
    StartRecord,
    begin_own,
    count_starts,
    device_id_of,
    host_id_of,
    insert_dispatcher,
    lock_study,
    past_use,
    refuse_living,
)
from tuner.store.records.dispatchers.takeover import clear_up
from tuner.store.records.durations import ended_uses
from tuner.store.records.trial_history import TrialHistory
from tuner.store.records.upload_rows import UploadRecords
from tuner.store.records.usage.record import UsageRecord
from tuner.store.records.usage.roll_up import roll_up
from tuner.store.schema.statements import as_stored

_Read = TypeVar("_Read")
_IS_RUN_ALREADY = (
    "This study is being run already, on {place}. Wait for it, end it with Ctrl-C, or start "
    "another study with --study NEW_NAME."
)


class Recorder:
    """Records for one dispatcher. Nothing is in the database before `commit`.

    Args:
        database: An open database.
        start: The dispatcher and its study.
        devices: Devices that this dispatcher may lease.
        clock: The time.
        budget: The budget of the study, over all dispatchers.
        silent: Dispatchers that were watched for a minute without a heartbeat.

    Raises:
        StoreError: If another dispatcher works, or may work, on a study that allows only one.
    """

    def __init__(
        self,
        database: Database,
        start: StartRecord,
        devices: Sequence[Device],
        *,
        clock: Clock,
        budget: Budget | None = None,
        silent: Collection[Sign] = (),
    ) -> None:
        budget = budget or Budget()
        at = clock.now().utc
        self._database = database
        self._rows = RowIds(start.study_id)
        self._states: dict[AttemptId, AttemptState] = {}
        self._pending = AttemptRows()
        self._checkpoints = CheckpointRows()
        self._dispatcher_change: dict[str, object] = {}
        self._n_dropped = 0
        #: The attempt on each slot of a device.
        self._slots: dict[tuple[int, int], AttemptId] = {}
        with self._errors():
            database.access.run(lambda c: self._begin(c, start, devices, at, budget, silent))
        database.storage.look_again()  # Trials of those that died wait by now.
        database.storage.read_again(start.study_id, self.tried_again)
        #: Attempts and checkpoints of trials, whichever dispatcher they are from.
        self.history = TrialHistory(self.run)
        self._ownership = Ownership(self.dispatcher_id, start.study_id, budget.trials, clock)
        #: Checkpoints and logs in an object store.
        self.uploads = UploadRecords(self.run, self._ownership)
        #: A batch that is being written, and may be in the database.
        self._taken: Batch | None = None
        self._n_batches = 0
        database.storage.write_for(self._ownership, self.commit)
        self.commands = Commands(database.access, start.study_id, dispatcher_id=self.dispatcher_id)
        self.fleet = Fleet(
            database,
            start.study_id,
            start.host.process,
            self.dispatcher_id,
            device_s_elsewhere=self.past.device_s,
            energy_kwh_elsewhere=self.past.energy_kwh,
        )
        self._watch_leases(devices)
        self.fleet.leases.look(clock.now())

    def _begin(
        self,
        connection: sa.Connection,
        start: StartRecord,
        devices: Sequence[Device],
        at: datetime,
        budget: Budget,
        silent: Collection[Sign],
    ) -> None:
        lock_study(connection, start.study_id)
        if connection.dialect.name == "sqlite":
            here, study_id = start.host.process, start.study_id
            refuse_living(connection, here, silent, _IS_RUN_ALREADY, study_id=study_id)
        clear_up(connection, start, at, silent)
        #: Ids of trials that failed before any had ended well; they wait again.
        self.tried_again = try_failed_again(connection, start.study_id)
        self.past = replace(
            past_use(connection, start.study_id),
            trials=ended_uses(connection, start.study_id),
        )
        self._host_id = host_id_of(connection, start.host)
        self._device_ids = self._ids_of(devices, connection)
        #: Usage of devices.
        self.usage = UsageRecord(self._device_ids)
        #: Number of earlier starts of the study's dispatchers.
        self.n_earlier_starts = count_starts(connection, start.study_id)
        labels = [device.label for device in devices]
        allocation_id = begin_own(connection, start, len(devices), at)
        self.dispatcher_id = insert_dispatcher(
            connection, start, self._host_id, at, labels, budget, allocation_id
        )

    def add_devices(self, devices: Sequence[Device]) -> None:
        """This dispatcher may lease these too.

        Raises:
            Unavailable: If the database does not answer now.
        """
        new = [device for device in devices if device.id not in self._device_ids]
        if new:
            with self._errors():
                self._device_ids |= self._database.access.run(partial(self._ids_of, new))
            self._watch_leases(new)

    def _watch_leases(self, devices: Sequence[Device]) -> None:
        gpus = [device.id for device in devices if device.kind is not DeviceKind.CPU]
        self.fleet.leases.watch({device_id: self._device_ids[device_id] for device_id in gpus})

    def _ids_of(self, devices: Sequence[Device], connection: sa.Connection) -> dict[DeviceId, int]:
        return {device.id: device_id_of(connection, self._host_id, device) for device in devices}

    @property
    def has_pending(self) -> bool:
        return bool(
            self._taken
            or self._pending
            or self._checkpoints
            or self.usage
            or self._dispatcher_change
            or self._database.storage.has_pending
        )

    @property
    def is_reachable(self) -> bool:
        """Whether the database has answered last time, or would by now."""
        return self._database.access.is_open

    @property
    def file_problem(self) -> str:
        """What happened to the database file, as text; empty if it is the open one."""
        return "" if self._database.file is None else self._database.file.problem()

    def rescue(self) -> Path | None:
        """Continues in a copy of a database whose file is lost; None if none can be made."""
        return self._database.rescue()

    @property
    def url(self) -> sa.URL:
        """URL of the database."""
        return self._database.engine.url

    @property
    def n_waiting_reports(self) -> int:
        """Number of reported values that are not in the database, as far as known."""
        taken = self._taken.n_reports if self._taken else 0
        return taken + self._database.storage.n_pending_reports + len(self._pending.metrics)

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
        row: Row = {
            "dispatcher_id": self.dispatcher_id,
            "trial_id": attempt.trial_id,
            "number": attempt.number,
            "state": attempt.state,
            "detail": "",
            "params": dict(params),
            "seed": attempt.seed,
            "log_path": log_path,
            "leased_at": as_stored(attempt.leased_at),
        }
        held: list[Row] = [
            {
                "device_id": self._device_ids[device.id],
                "held_device_id": None if device.kind is DeviceKind.CPU else device_id,
                "held_slot": self._take_slot(device_id, attempt.id, is_whole=lease.is_whole),
                "share": lease.parts / WHOLE,
                "leased_at": as_stored(attempt.leased_at),
                "released_at": None,
            }
            for device in lease.devices
            if (device_id := self._device_ids[device.id])
        ]
        labels = ", ".join(device.label for device in lease.devices)
        self._states[attempt.id] = attempt.state
        self._pending.add_lease(attempt, row, held)
        self._event("leased", attempt.leased_at, attempt.id, labels)

    def moved(
        self, attempt: Attempt, *, at: datetime, params: Mapping[str, Json] | None = None
    ) -> None:
        """Records an attempt's new state; `params` are the trial's parameters."""
        before = self._states[attempt.id]
        self._states[attempt.id] = attempt.state
        ending, ended = attempt.ending, None
        if ending is not None and params is not None:
            ended = {
                "outcome": ending.outcome,
                "cause": ending.cause,
                "detail": ending.detail,
                "params": dict(params),
                "peak_memory_bytes": attempt.peak_memory_bytes,
            }
        self._pending.add_move(attempt, before, ended)
        detail = ending.outcome.value if ending else ""
        self._event(attempt.state.value, at, attempt.id, detail)
        if attempt.state is AttemptState.FINISHED:
            del self._states[attempt.id]
            self._slots = {at: owner for at, owner in self._slots.items() if owner != attempt.id}

    def metrics(self, attempt_id: AttemptId, step: int, values: Mapping[str, float]) -> None:
        """Records metrics other than the objectives. Written with the next commit."""
        for name, value in values.items():
            if len(self._pending.metrics) >= MOST_WAITING:
                self._n_dropped += 1
            else:
                stored = value if math.isfinite(value) else None
                self._pending.add_metric(attempt_id, step, name, stored)

    def saved(self, attempt: Attempt, state: SavedState) -> None:
        """A checkpoint of an attempt's trial is on disk."""
        self._checkpoints.added.append((attempt.trial_id, attempt.id, state))

    def removed(self, trial_id: int, path: str) -> None:
        """Records that a checkpoint was removed."""
        self._checkpoints.gone.append((trial_id, path))

    def renamed(self, trial_id: int, before: str, after: str) -> None:
        """Records that a checkpoint of another machine has another path here."""
        self._checkpoints.renamed.append((trial_id, before, after))

    def forget_checkpoints(self, trial_number: int, folder: str) -> None:
        """All that a trial had in a folder was removed."""
        self._checkpoints.removed.append((trial_number, folder))

    def write_removals(self) -> None:
        """Writes removed checkpoints after the study's end, when only these are left.

        Raises:
            Unavailable: If the database does not answer now.
        """
        rows, self._checkpoints = self._checkpoints, CheckpointRows()
        if rows:
            with self._errors():
                write = rows.write
                self._database.access.run(lambda c: write(c, self._ownership.study_id, self._rows))

    def roll_up(self, at: datetime) -> bool:
        """Aggregates old device samples, one part per call; returns whether there was any.

        Raises:
            Unavailable: If the database does not answer now.
            StoreError: If the database refuses.
        """

        def work(connection: sa.Connection) -> bool:
            self._ownership.renew(connection)
            return roll_up(connection, self.dispatcher_id, int(at.timestamp()))

        with self._errors():
            return self._database.access.run(work)

    def note(self, name: str, *, at: datetime, detail: str = "") -> None:
        """Something that happened to the dispatcher itself."""
        self._event(name, at, None, detail)

    def allow(self, budget: Budget) -> None:
        """Changes the study's budget."""
        self._ownership.n_trials = budget.trials
        self._dispatcher_change["budget"] = asdict(budget)

    def beat(self, at: datetime, devices: Sequence[Device]) -> None:
        """Shows others that this dispatcher is alive, and which devices it has."""
        labels = [device.label for device in devices]
        self._dispatcher_change |= {"beat_at": as_stored(at), "devices": labels}

    def end(self, at: datetime, reason: str = "") -> None:
        """This dispatcher works on the study no more."""
        ended_at = as_stored(at)
        end = {"beat_at": ended_at, "ended_at": ended_at, "end_reason": reason[:255]}
        self._dispatcher_change |= end

    def commit(self) -> None:
        """Writes everything buffered in one transaction.

        Raises:
            Unavailable: If the database does not answer now; then nothing is lost.
            StoreError: If the database refuses; then nothing is written.
        """
        while self.has_pending:
            self._taken = batch = self._taken or self._take()
            with self._errors():
                self._database.access.run(partial(self._write, batch))
            self._n_batches = batch.number
            self._taken = None
            self._database.storage.forget_taken()

    def give_up_all_but(self, trial_ids: Collection[int]) -> None:
        """After an outage: requeues trials that are claimed for this dispatcher in error."""
        with self._errors():
            self._database.storage.give_up_all_but(self._ownership.study_id, trial_ids)

    def _take(self) -> Batch:
        """Starts a new batch; returns the old one."""
        batch = Batch(
            number=self._n_batches + 1,
            optuna_rows=self._database.storage.take_pending(),
            attempt_rows=self._pending,
            checkpoint_rows=self._checkpoints,
            usage_rows=self.usage.take(),
            dispatcher=self._dispatcher_change,
        )
        self._pending, self._checkpoints = AttemptRows(), CheckpointRows()
        self._dispatcher_change = {}
        return batch

    def _write(self, batch: Batch, connection: sa.Connection) -> None:
        ownership = self._ownership
        if ownership.begin_batch(connection, batch.number):
            batch.write(connection, ownership.study_id, self.dispatcher_id, self._rows)

    def run(self, look: Callable[[sa.Connection], _Read]) -> _Read:
        """Runs a read-only transaction, independent of buffered changes."""
        with self._errors():
            return self._database.access.run(look)

    def _take_slot(self, device_id: int, attempt_id: AttemptId, *, is_whole: bool) -> int:
        # The database refuses a lease on a whole device if a part of it is leased.
        free = (slot for slot in itertools.count() if (device_id, slot) not in self._slots)
        slot = 0 if is_whole else next(free)
        self._slots[device_id, slot] = attempt_id
        return slot

    def _event(self, name: str, at: datetime, attempt_id: AttemptId | None, detail: str) -> None:
        self._pending.add_event(name, at, self.dispatcher_id, attempt_id, detail)

    def _errors(self) -> AbstractContextManager[None]:
        return store_errors(self._database.shown_url)
