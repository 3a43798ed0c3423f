"""A recorder that writes nothing: a simulation's database is deleted at its end.

Writes were most of the cost of a simulated epoch. The dispatcher's queries are answered from
memory, and no other process works on the study.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from tuner.devices.allocation.pool import Lease
from tuner.devices.device import Device
from tuner.devices.idle_causes import IdleSpan
from tuner.domain.attempt import Attempt, Ending
from tuner.domain.messages import Json
from tuner.host.clock import Clock, Instant
from tuner.store.connection.database import Database
from tuner.store.records.commands import Command, Commands
from tuner.store.records.dispatchers.peers import Fleet, Loss
from tuner.store.records.dispatchers.starts import StartRecord
from tuner.store.records.recorder import Recorder
from tuner.store.records.trial_history import Reads, TrialHistory
from tuner.store.records.usage.record import UsageRecord


class _NoCommands(Commands):
    """No commands: no other process knows the study."""

    def read(self) -> list[Command]:
        return []


class _NoOthers(Fleet):
    """One dispatcher works on the study."""

    def look(self, now: Instant) -> list[Loss]:
        return []

    def measure(self) -> None: ...


class _NoUsage(UsageRecord):
    """Ignores idle devices; there is no sampler."""

    def idle(self, span: IdleSpan) -> None: ...


class _KnownHistory(TrialHistory):
    """Counts of attempts from memory; no ending is recorded."""

    def __init__(self, run: Reads, n_attempts: Mapping[int, int]) -> None:
        super().__init__(run)
        self._n_attempts = n_attempts

    def attempts_of(self, trial_id: int) -> int:
        return self._n_attempts.get(trial_id, 0)

    def endings_of(self, trial_id: int) -> list[Ending]:
        return []


class UnwrittenRecorder(Recorder):
    """Accepts all records and writes none; the storage stops writing, too.

    Args:
        database: The simulation's own database.
        start: The dispatcher and its study.
        devices: Devices that it may lease.
        clock: The time.
    """

    def __init__(
        self, database: Database, start: StartRecord, devices: Sequence[Device], *, clock: Clock
    ) -> None:
        super().__init__(database, start, devices, clock=clock)
        self.commands = _NoCommands(
            database.access, start.study_id, dispatcher_id=self.dispatcher_id
        )
        self.fleet = _NoOthers(database, start.study_id, start.host.process, own_id=0)
        self.usage = _NoUsage({})
        self._n_attempts: dict[int, int] = {}
        self.history = _KnownHistory(self.run, self._n_attempts)
        self._storage = database.storage
        self._storage.stay_in_memory()

    @property
    def has_pending(self) -> bool:
        return False

    def lease(
        self, attempt: Attempt, lease: Lease, *, params: Mapping[str, Json], log_path: str
    ) -> None:
        self._n_attempts[attempt.trial_id] = attempt.number

    def moved(
        self, attempt: Attempt, *, at: datetime, params: Mapping[str, Json] | None = None
    ) -> None: ...

    def commit(self) -> None:
        self._storage.take_pending()
        self._storage.forget_taken()

    def roll_up(self, at: datetime) -> bool:
        return False
