"""A dispatcher with its real study and database, on a clock, devices and workers of the test's."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy as sa
from optuna.trial import FrozenTrial

from tests.databases import new_database
from tests.fakes import (
    FakeChannel,
    FakeClock,
    FakeInbox,
    FakeLauncher,
    FakeProbe,
    RecordingView,
)
from tests.hosts import DEAD
from tests.integration.dispatcher.database_faults import prepare_faults
from tuner.checkpoints.paths import StudyFiles
from tuner.checkpoints.retention import RetentionRule
from tuner.checkpoints.trial_folders import TrialFolders
from tuner.config import Direction
from tuner.devices.allocation.pool import DevicePool
from tuner.devices.allocation.quarantine import Quarantine
from tuner.devices.allocation.standby import Standby
from tuner.devices.allocation.watch import DeviceWatch
from tuner.devices.allocation.width import ONE, FixedWidth, LearnedWidth, Width, WidthRule
from tuner.devices.device import Device
from tuner.devices.limits import GpuLimits
from tuner.devices.packing.learned import Sharing
from tuner.devices.request import parse_device_request
from tuner.devices.reselection import Reselection
from tuner.dispatch.dispatcher import Dispatcher
from tuner.dispatch.notices import Ended, Said, Started
from tuner.dispatch.parts import DispatcherSetup
from tuner.dispatch.supply.gpu_memory import GpuMemory
from tuner.dispatch.supply.leasing import Leasing
from tuner.dispatch.terms import AllocationTerms, Result, Terms
from tuner.dispatch.upkeep.checkpoint_sweeper import SweepThread
from tuner.dispatch.upkeep.checkpoint_sync import CheckpointSync
from tuner.domain.attempt import AttemptId, Cause, Outcome
from tuner.domain.budget import Budget
from tuner.domain.messages import (
    Action,
    Finished,
    FromWorker,
    Hello,
    Report,
    ToWorker,
    Verdict,
)
from tuner.errors import ConfigError
from tuner.launch.inbox import SignalReceived, SourceId
from tuner.launch.plan import ENV_TOKEN, TrialPlan
from tuner.launch.request import FunctionProgram, LaunchRequest
from tuner.search.study import StudySearch
from tuner.search_spaces import AnySpace, parse_space
from tuner.store.connection.database import Database, open_database, store_errors
from tuner.store.records.dispatchers.starts import StartRecord
from tuner.store.records.provenance import GitState, HostFacts
from tuner.store.records.recorder import Recorder
from tuner.store.schema.models import AttemptRow, LeaseRow

SPACE = parse_space({"x": {"type": "float", "low": 0.0, "high": 1.0}})
GRACE_S = 10.0
ONE_DEVICE = FixedWidth(width=ONE)


class FakeWorker:
    """The program of one attempt, as the test plays it."""

    def __init__(self, world: World, request: LaunchRequest) -> None:
        self._world = world
        self.request = request
        self.id = request.attempt_id
        self.rank = request.rank
        self.source: SourceId = world.channel.connect()
        self._is_known = False

    @property
    def pid(self) -> int:
        return self._world.launcher.pid_of(self.id, self.rank)

    @property
    def trial_number(self) -> int:
        return self.request.assign.trial_number

    @property
    def heard(self) -> list[ToWorker]:
        return self._world.channel.heard(self.source)

    @property
    def verdicts(self) -> list[Verdict]:
        return [message for message in self.heard if isinstance(message, Verdict)]

    def hello(self, *, is_worker: bool = True, since_boot_s: float | None = None) -> None:
        token = self.request.environment[ENV_TOKEN]
        self._is_known = True
        self.say(
            Hello(
                attempt_id=self.id,
                token=token,
                pid=1,
                is_worker=is_worker,
                rank=self.rank,
                since_boot_s=since_boot_s,
            )
        )

    def say(self, message: FromWorker) -> None:
        """Raises AssertionError where it has not said hello: no program does that."""
        assert self._is_known, f"{self.id} says {message} before its hello: turn the world first"
        self._world.channel.say(self.source, message)

    def report(self, step: int, value: float = 0.5, **metrics: float) -> None:
        values = {self._world.objective: value}
        self.say(Report(attempt_id=self.id, step=step, values=values, metrics=metrics))

    def complete(self, value: float = 0.5) -> None:
        values = {self._world.objective: value}
        self.finish(Outcome.COMPLETED, values=values)
        self.exit(0)

    def finish(self, outcome: Outcome, **fields: Any) -> None:
        """Says its last word; its process stays."""
        self.say(Finished(attempt_id=self.id, outcome=outcome, rank=self.rank, **fields))

    def fail(
        self,
        detail: str = "ValueError",
        outcome: Outcome = Outcome.FAILED,
        cause: Cause = Cause.EXCEPTION,
    ) -> None:
        self.finish(outcome, cause=cause, detail=detail)
        self.exit(0)

    def exit(self, exit_code: int, *, is_lost: bool = False) -> None:
        self._world.launcher.exit(self.id, exit_code, self.rank, is_lost=is_lost)

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        self._world.inbox.later(seconds, action)


Program = Callable[[FakeWorker], None]


def completes(worker: FakeWorker) -> None:
    """Runs for a second, reports once, and completes."""
    worker.later(0.1, worker.hello)
    worker.later(0.5, lambda: worker.report(1))
    worker.later(1.0, worker.complete)


def sleeps(worker: FakeWorker) -> None:
    worker.later(0.1, worker.hello)


class RecordingLocks:
    """Another tuner of this host has what the test says; the others' claims are remembered."""

    def __init__(self) -> None:
        self.elsewhere: set[str] = set()
        self.held: set[str] = set()

    def acquire(self, device: Device) -> bool:
        if device.label in self.elsewhere:
            return False
        self.held.add(device.label)
        return True

    def release(self, device: Device) -> None:
        self.held.discard(device.label)

    def owner_pid(self, device: Device) -> int | None:
        return 77 if device.label in self.elsewhere else None


class World:
    """Everything around one dispatcher.

    Args:
        folder: Of the database and the logs.
        program: What each worker does.
        n_devices: GPUs.
        space: Of the study.
        n_more_devices: GPUs of this host that the study does not have, and may ask for.
        objectives: Of the study; accuracy alone else.
        **terms: Of the dispatcher.
    """

    objective = "accuracy"

    def __init__(
        self,
        folder: Path,
        program: Program = completes,
        *,
        n_devices: int = 2,
        n_trials: int | None = 4,
        budget: Budget | None = None,
        space: AnySpace | None = SPACE,
        sampler: optuna.samplers.BaseSampler | None = None,
        pruner: optuna.pruners.BasePruner | None = None,
        host: HostFacts | None = None,
        retries: int = 0,
        timeout_s: float | None = None,
        clock: FakeClock | None = None,
        view: RecordingView | None = None,
        rule: WidthRule = ONE_DEVICE,
        widths: Sequence[Width] = (ONE,),
        is_ddp: bool = False,
        is_polite: bool = False,
        retention: RetentionRule | None = None,
        quarantine: Quarantine | None = None,
        n_more_devices: int = 0,
        widens: bool = False,
        objectives: Mapping[str, Direction] | None = None,
        allocation: AllocationTerms | None = None,
    ) -> None:
        self.program = program
        objectives = objectives or {self.objective: Direction.MAXIMIZE}
        self.workers: list[FakeWorker] = []
        self.n_running_at_most = 0
        self.clock = clock or FakeClock()
        self.inbox = FakeInbox(self.clock)
        self.channel = FakeChannel(self.inbox)
        self.launcher = FakeLauncher(self.inbox, self._launched)
        self.probe = FakeProbe(n_devices + n_more_devices)
        self.locks = RecordingLocks()
        devices = self.probe.devices()[:n_devices]
        self.view = view or RecordingView()
        self.url = new_database(folder)
        self.database: Database = open_database(self.url)
        prepare_faults(self.database)
        self.search = StudySearch(
            self.database.storage,
            "study",
            objectives=objectives,
            space=space,
            sampler=sampler or optuna.samplers.RandomSampler(seed=0),
            pruner=pruner or optuna.pruners.NopPruner(),
        )
        start = a_start(self.search.study_id, host)
        self.recorder = Recorder(
            self.database,
            start,
            devices,
            clock=self.clock,
            budget=budget or Budget(trials=n_trials),
        )
        self.search.sync()
        # As long as no test wants: only what a test breaks is broken.
        self.database.access.wait_at_most(60.0)
        pool, watch = DevicePool(devices), DeviceWatch(self.probe)
        sharing = Sharing(devices) if rule == LearnedWidth() else None
        self.files = StudyFiles(folder=folder, study="study")
        self.housekeeping = SweepThread(
            self.search, self.files, retention or RetentionRule(), self.recorder
        )
        self.dispatcher = Dispatcher(
            DispatcherSetup(
                search=self.search,
                recorder=self.recorder,
                launcher=self.launcher,
                channel=self.channel,
                leasing=Leasing(
                    pool=pool,
                    watch=watch,
                    memory=GpuMemory(pool, watch, sharing, session_of=lambda pid: pid),
                    rule=rule,
                    widths=widths,
                    standby=Standby(self.probe, self.locks, own_pids=frozenset)
                    if is_polite
                    else None,
                    sharing=sharing,
                    quarantine=quarantine,
                ),
                plan=TrialPlan(
                    program=FunctionProgram(module="m", function="f"),
                    files=self.files,
                    study="study",
                    seed=7,
                    objectives=tuple(objectives),
                    is_ddp=is_ddp,
                    guards_memory=rule != LearnedWidth(),
                ),
                terms=Terms(
                    budget=budget or Budget(trials=n_trials),
                    retries=retries,
                    timeout_s=timeout_s,
                    stop_grace_s=GRACE_S,
                    launch_timeout_s=30.0,
                    widens=widens,
                    allocation=allocation,
                ),
                view=self.view,
                clock=self.clock,
                housekeeping=self.housekeeping,
                saving=CheckpointSync(self.files, self.recorder),
                reselection=self._reselection(widths),
                folders=TrialFolders(self.files, self.search.key),
            )
        )

    def _reselection(self, widths: Sequence[Width]) -> Reselection:
        def check(devices: Sequence[Device]) -> None:
            if not any(map(DevicePool(devices).can_ever_fit, widths)):
                raise ConfigError("No trial fits.")

        return Reselection(
            lambda: self.probe,
            self.locks,
            GpuLimits(),
            parse_device_request,
            check,
            self.probe,
        )

    # -- what the test does ------------------------------------------------------------------

    def run(self) -> Result:
        with store_errors(self.url):
            result = self.dispatcher.run(self.inbox)
        assert not self.launcher.running, "the dispatcher ended before its workers"
        return result

    def turn(self, seconds: float = 0.0) -> None:
        """Lets the dispatcher work until so much time has passed, once at least."""
        end_s = self.now_s + seconds
        while True:
            with store_errors(self.url):
                self.dispatcher.tick(self.clock.now(), self.inbox.drain(0.0))
            if self.now_s >= end_s:
                break
            self.clock.advance(min(0.25, end_s - self.now_s))

    def turn_until(self, is_so: Callable[[], bool]) -> None:
        """Lets the dispatcher work until something is so, which another thread brings about."""
        give_up_at_s = time.monotonic() + 30.0
        while not is_so():
            assert time.monotonic() < give_up_at_s, "it never came to be"
            self.turn(1.0)
            time.sleep(0.02)  # The core is for the other thread or process.

    def interrupt(self) -> None:
        self.inbox.post(SignalReceived(number=2))

    # -- what the test looks at --------------------------------------------------------------

    @property
    def now_s(self) -> float:
        return self.clock.now().monotonic_s

    @property
    def endings(self) -> list[tuple[AttemptId, str]]:
        return [(e.attempt.id, e.ending.outcome.value) for e in self.ended]

    @property
    def ended(self) -> list[Ended]:
        return [notice for notice in self.view.notices if isinstance(notice, Ended)]

    @property
    def started(self) -> list[Started]:
        return [notice for notice in self.view.notices if isinstance(notice, Started)]

    @property
    def said(self) -> list[str]:
        return [notice.text for notice in self.view.notices if isinstance(notice, Said)]

    def stored_trials(self) -> list[FrozenTrial]:
        """As any other program of Optuna reads them from the database."""
        return optuna.load_study(study_name="study", storage=self.url).get_trials()

    def stored_states(self) -> list[str]:
        return [trial.state.name for trial in self.stored_trials()]

    def rows(self, table: type[AttemptRow] | type[LeaseRow]) -> Sequence[sa.Row[tuple[object]]]:
        with self.database.engine.connect() as connection:
            return connection.execute(sa.select(sa.inspect(table).local_table)).all()

    def close(self) -> None:
        self.database.close()

    def _launched(self, request: LaunchRequest) -> None:
        self.workers.append(FakeWorker(self, request))
        running = len(self.launcher.running)
        self.n_running_at_most = max(self.n_running_at_most, running)
        self.program(self.workers[-1])


def a_start(study_id: int, host: HostFacts | None = None, **changes: Mapping[str, str]):
    """The record of a start; by a process that is gone, so that a later one takes over."""
    start = StartRecord(
        study_id=study_id,
        host=host or DEAD,
        seed=7,
        study_file="",
        folder="",
        versions={},
        git=GitState(),
    )
    return replace(start, **changes)


def is_prune(verdict: Verdict) -> bool:
    return verdict.action is Action.PRUNE
