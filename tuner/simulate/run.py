"""One simulated study, from an empty database to its end."""

from __future__ import annotations

import functools
import math
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import sqlalchemy as sa

from tuner.checkpoints.paths import StudyFiles
from tuner.config import Direction, PrunerConfig, StudyConfig
from tuner.devices.allocation.pool import DevicePool
from tuner.devices.allocation.watch import DeviceWatch
from tuner.devices.allocation.width import ONE, FixedWidth
from tuner.devices.cpu_slots.probe import CpuProbe
from tuner.dispatch.dispatcher import Dispatcher
from tuner.dispatch.notices import Notice, Snapshot
from tuner.dispatch.parts import DispatcherSetup
from tuner.dispatch.supply.gpu_memory import GpuMemory
from tuner.dispatch.supply.leasing import Leasing
from tuner.dispatch.terms import Terms
from tuner.domain.budget import Budget
from tuner.launch.plan import TrialPlan
from tuner.launch.request import FunctionProgram
from tuner.search.asked_trial import AskedTrial
from tuner.search.defaults import pruner_of, sampler_of
from tuner.search.scheduler import Verdict
from tuner.search.study import StudySearch
from tuner.search_spaces import ParamValue
from tuner.simulate.curves import Curves
from tuner.simulate.null_recorder import UnwrittenRecorder
from tuner.simulate.players import Players, Reported, VirtualClock, best_so_far
from tuner.store.connection.database import Database, open_database
from tuner.store.optuna_tables.storage import BufferedStorage
from tuner.store.records.dispatchers.starts import StartRecord
from tuner.store.records.provenance import GitState, host_facts, package_versions

#: On the virtual clock; no trial waits for these records, and none is lost.
_COMMIT_EVERY_S = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """Result of a study on the virtual clock."""

    pruner: str
    seed: int
    n_devices: int
    #: From the first start to the last end.
    makespan_s: float
    #: That devices were held.
    device_s: float
    #: The best value so far, whenever it was bettered.
    best: Sequence[Reported]
    n_trials: int
    n_completed: int
    n_attempts: int
    n_reports: int
    #: Trials that would have continued beyond their recorded curve.
    n_cut_short: int
    #: Seconds on this machine.
    took_s: float
    #: Seconds of these in the sampler and the pruner.
    search_s: float

    @property
    def idle_share(self) -> float:
        """Idle fraction of the devices' time until the end."""
        return 1.0 - self.device_s / (self.makespan_s * self.n_devices or 1.0)


class _SavedFiles(StudyFiles):
    """Files of simulated trials: each step is saved, and there are no logs."""

    def has_checkpoint(self, trial_number: int) -> bool:
        return True

    def log(self, trial_number: int, attempt_number: int, rank: int = 0) -> Path:
        return self.folder / "log"


class _Unseen:
    """A view that shows nothing."""

    refresh_every_s = math.inf

    def show(self, notice: Notice) -> None: ...

    def refresh(self, snapshot: Snapshot) -> None: ...


class _TimedSearch(StudySearch):
    """Measures the time of sampler and pruner."""

    search_s = 0.0

    def ask(self) -> AskedTrial | None:
        began_s = time.perf_counter()
        asked = super().ask()
        self.search_s += time.perf_counter() - began_s
        return asked

    def report(
        self, trial_id: int, step: int, values: Mapping[str, float], *, held_s: float | None = None
    ) -> Verdict:
        began_s = time.perf_counter()
        verdict = super().report(trial_id, step, values, held_s=held_s)
        self.search_s += time.perf_counter() - began_s
        return verdict


def simulate(
    config: StudyConfig,
    table: Curves,
    *,
    pruner: PrunerConfig,
    seed: int,
    n_devices: int,
    restart_s: float,
    budget: Budget,
    transferred: Sequence[Mapping[str, ParamValue]] = (),
) -> Simulated:
    """Simulates a study once.

    Args:
        config: Its space, sampler and objective.
        table: Curves of its configurations.
        pruner: Replaces the one in the file.
        seed: Seed of the sampler.
        n_devices: Number of devices; each runs one trial at a time.
        restart_s: Seconds that an attempt takes before it trains.
        budget: Its budget, on the virtual clock.
        transferred: The best configurations of earlier studies, which are tried first.
    """
    began_s = time.perf_counter()
    clock = VirtualClock()
    (objective,) = config.objectives
    players = Players(clock, table.curve, objective=objective, restart_s=restart_s)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="tuner-simulate-")))
        database = stack.enter_context(closing(_open_database(folder)))
        search = _search(config, database.storage, pruner, seed, transferred)
        devices = CpuProbe(n_devices)
        recorder = UnwrittenRecorder(
            database, _start(search.study_id, seed), devices.devices(), clock=clock
        )
        plan = _plan(config, folder, seed)
        dispatcher = _dispatcher(search, recorder, players, _leasing(devices), plan, budget, clock)
        result = dispatcher.run(players)
        n_trials = search.counts.n_begun
    is_maximized = config.objectives[objective] is Direction.MAXIMIZE
    return Simulated(
        pruner=pruner.name,
        seed=seed,
        n_devices=n_devices,
        makespan_s=clock.elapsed_s,
        device_s=dispatcher.device_s,
        best=best_so_far(players.reports, is_maximized=is_maximized),
        n_trials=n_trials,
        n_completed=result.n_completed,
        n_attempts=players.n_attempts,
        n_reports=len(players.reports),
        n_cut_short=players.n_cut_short,
        took_s=time.perf_counter() - began_s,
        search_s=search.search_s,
    )


def _dispatcher(
    search: StudySearch,
    recorder: UnwrittenRecorder,
    players: Players,
    leasing: Leasing,
    plan: TrialPlan,
    budget: Budget,
    clock: VirtualClock,
) -> Dispatcher:
    return Dispatcher(
        DispatcherSetup(
            search=search,
            recorder=recorder,
            launcher=players,
            channel=players,
            leasing=leasing,
            plan=plan,
            terms=Terms(budget=budget, commit_every_s=_COMMIT_EVERY_S),
            view=_Unseen(),
            clock=clock,
        )
    )


def _open_database(folder: Path) -> Database:
    file = folder / "study.db"
    file.write_bytes(_empty_database())
    database = open_database(f"sqlite:///{file}")
    sa.event.listen(database.engine, "connect", _never_wait_for_the_disk)
    database.engine.dispose()
    return database


@functools.cache
def _empty_database() -> bytes:
    """Optuna takes longer to make its tables than a thousand steps to be played."""
    with TemporaryDirectory(prefix="tuner-simulate-") as folder:
        file = Path(folder) / "empty.db"
        open_database(f"sqlite:///{file}").close()
        return file.read_bytes()


def _never_wait_for_the_disk(connection: sqlite3.Connection, _record: object) -> None:
    """Disables syncs: this database is not needed after a crash."""
    connection.execute("PRAGMA synchronous=OFF")


def _start(study_id: int, seed: int) -> StartRecord:
    return StartRecord(
        study_id=study_id,
        host=host_facts(),
        seed=seed,
        study_file="",
        folder="",
        versions=package_versions(),
        git=GitState(),
    )


def _leasing(devices: CpuProbe) -> Leasing:
    pool, watch = DevicePool(devices.devices()), DeviceWatch(devices)
    return Leasing(
        pool=pool,
        watch=watch,
        memory=GpuMemory(pool, watch, None),
        rule=FixedWidth(width=ONE),
        widths=(ONE,),
    )


def _plan(config: StudyConfig, folder: Path, seed: int) -> TrialPlan:
    return TrialPlan(
        program=FunctionProgram(module="simulated", function="train"),
        files=_SavedFiles(folder=folder, study=config.study),
        study=config.study,
        seed=seed,
        objectives=tuple(config.objectives),
    )


def _search(
    config: StudyConfig,
    storage: BufferedStorage,
    pruner: PrunerConfig,
    seed: int,
    transferred: Sequence[Mapping[str, ParamValue]],
) -> _TimedSearch:
    sampler = config.sampler.model_copy(update={"seed": seed})
    config = config.model_copy(update={"pruner": pruner, "sampler": sampler})
    return _TimedSearch(
        storage,
        config.study,
        objectives=config.objectives,
        space=config.search_space,
        sampler=sampler_of(config, seed=seed, transferred=transferred),
        pruner=pruner_of(config),
    )
