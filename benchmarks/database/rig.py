"""The real dispatcher on a real database, with workers that only say what real ones would."""

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from benchmarks.database.stored import OBJECTIVE, STUDY, open_search
from tuner.checkpoints.paths import StudyFiles
from tuner.compose.wiring import DATABASE_PATIENCE_S
from tuner.devices.allocation.pool import DevicePool
from tuner.devices.allocation.watch import DeviceWatch
from tuner.devices.allocation.width import ONE, FixedWidth
from tuner.devices.cpu_slots.probe import CpuProbe
from tuner.dispatch.dispatcher import Dispatcher
from tuner.dispatch.notices import View
from tuner.dispatch.parts import DispatcherSetup
from tuner.dispatch.supply.gpu_memory import GpuMemory
from tuner.dispatch.supply.leasing import Leasing
from tuner.dispatch.terms import Terms
from tuner.domain.budget import Budget
from tuner.host.clock import Clock
from tuner.launch.plan import TrialPlan
from tuner.launch.protocols import Channel, Launcher
from tuner.launch.request import FunctionProgram
from tuner.search.study import StudySearch
from tuner.store.connection.database import Database, open_database
from tuner.store.records.dispatchers.starts import StartRecord
from tuner.store.records.provenance import GitState, HostFacts, host_facts, package_versions
from tuner.store.records.recorder import Recorder
from tuner.terminal.plain import PlainView


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A study as a dispatcher has it before its first round."""

    database: Database
    search: StudySearch
    recorder: Recorder


def open_study(
    database: Database, clock: Clock, *, n_slots: int, host: HostFacts | None = None
) -> Opened:
    """In the order of `tuner.compose.wiring`; on this host, unless another one is named."""
    search = open_search(database)
    start = StartRecord(
        study_id=search.study_id,
        host=host or host_facts(),
        seed=0,
        study_file="",
        folder="",
        versions=package_versions(),
        git=GitState(),
    )
    recorder = Recorder(database, start, CpuProbe(n_slots).devices(), clock=clock)
    search.sync()
    database.access.wait_at_most(DATABASE_PATIENCE_S)
    return Opened(database=database, search=search, recorder=recorder)


@contextmanager
def opened(url: str, clock: Clock, *, n_slots: int) -> Iterator[Opened]:
    with closing(open_database(url)) as database:
        yield open_study(database, clock, n_slots=n_slots)


def build_dispatcher(
    study: Opened,
    *,
    folder: Path,
    n_slots: int,
    n_trials: int | None,
    launcher: Launcher,
    channel: Channel,
    view: View,
    clock: Clock,
) -> Dispatcher:
    """As `tuner.compose.wiring` puts it together for CPU slots."""
    probe = CpuProbe(n_slots)
    pool, watch = DevicePool(probe.devices()), DeviceWatch(probe)
    return Dispatcher(
        DispatcherSetup(
            search=study.search,
            recorder=study.recorder,
            launcher=launcher,
            channel=channel,
            leasing=Leasing(
                pool=pool,
                watch=watch,
                memory=GpuMemory(pool, watch, None),
                rule=FixedWidth(width=ONE),
                widths=(ONE,),
            ),
            plan=TrialPlan(
                program=FunctionProgram(module="played", function="train"),
                files=StudyFiles(folder=folder, study=STUDY),
                study=STUDY,
                seed=0,
                objectives=(OBJECTIVE,),
            ),
            terms=Terms(budget=Budget(trials=n_trials)),
            view=view,
            clock=clock,
        )
    )


@contextmanager
def unseen_view() -> Iterator[PlainView]:
    """Lines are made as for a log, and nobody reads them."""
    with Path(os.devnull).open("w") as out:
        yield PlainView(out)


class Transactions:
    """Counts the transactions of an engine that are committed."""

    def __init__(self, *engines: sa.Engine) -> None:
        self.n = 0
        for engine in engines:
            sa.event.listen(engine, "commit", self._count)

    def _count(self, _connection: sa.Connection) -> None:
        self.n += 1
