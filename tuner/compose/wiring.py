"""The composition root: puts a study's parts together and lets the dispatcher run them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from optuna.pruners import BasePruner
from rich.console import Console
from sqlalchemy.exc import SQLAlchemyError

from tuner.checkpoints.object_store.process import Transfers
from tuner.checkpoints.paths import StudyFiles
from tuner.compose.allocations.lent import Lent
from tuner.compose.confirm import HookedView, confirm
from tuner.compose.study_plan import (
    DevicesTaken,
    HostDevices,
    open_telemetry,
    program_of,
    rule_of,
    widths_of,
)
from tuner.compose.transfer import told
from tuner.compose.workplace import OpenStudy, Workplace, make_dispatcher, open_study
from tuner.config import StudyConfig
from tuner.config.machine_checks import resolve_argv
from tuner.config.sections.profile import BEST
from tuner.devices.allocation.pool import DevicePool
from tuner.devices.allocation.standby import Standby
from tuner.devices.allocation.watch import DeviceWatch
from tuner.devices.allocation.width import LearnedWidth
from tuner.devices.device import DeviceKind
from tuner.devices.locks import DeviceLocks
from tuner.devices.packing.learned import Sharing
from tuner.devices.request import AutoDevices
from tuner.dispatch.notices import View
from tuner.dispatch.object_store.start import open_transfers
from tuner.dispatch.supply.gpu_memory import GpuMemory
from tuner.dispatch.supply.leasing import Leasing
from tuner.dispatch.terms import Leave, Result
from tuner.dispatch.upkeep.telemetry_thread import Sampler
from tuner.engines.progress import ProgressView
from tuner.errors import (
    EXIT_BAD_INPUT,
    EXIT_BUDGET_REACHED,
    EXIT_COME_BACK,
    EXIT_INTERRUPTED,
    EXIT_STUDY_FAILED,
    ConfigError,
    LaunchError,
)
from tuner.host.clock import SystemClock
from tuner.launch.channel import ChannelServer
from tuner.launch.inbox import Event, Inbox, SignalReceived, SignalSource
from tuner.launch.protocols import Guard, StudyLauncher
from tuner.monitoring.best_profile import BestProfile
from tuner.monitoring.counters import FiguresView
from tuner.monitoring.hooks import Hook, Hooks, HookTerms
from tuner.queries.results.confirmations import Confirmation, read_confirmation
from tuner.queries.results.range_ends import RangeEnd, read_range_ends
from tuner.search.incumbent import BestTrial
from tuner.search.samplers.out_of_process.sampler import out_of_process
from tuner.search.samplers.prior import PriorSampler
from tuner.search.study import StudySearch
from tuner.search_spaces import SearchSpace
from tuner.shares.locks import SharedLocks
from tuner.store.connection.database import Database, open_database, store_errors, watched
from tuner.store.connection.transactions import Unavailable
from tuner.store.records.dispatchers.connections import connections_remark
from tuner.terminal.live import LiveView
from tuner.terminal.plain import PlainView
from tuner.tracking.process import Trackers
from tuner.tracking.worker import Job

if TYPE_CHECKING:
    from tuner.monitoring.prometheus import MetricsServer

_log = logging.getLogger(__name__)

#: Maximum seconds for which the dispatcher blocks on a transaction.
DATABASE_PATIENCE_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyEnd:
    """The message at the end, and the exit code."""

    result: Result
    best: BestTrial | None
    exit_code: int
    #: Results of the confirmation runs; None if the study file has no `confirm`.
    confirmation: Confirmation | None = None
    #: With several objectives: the trials on the Pareto front.
    front: tuple[BestTrial, ...] = ()
    #: Parameters whose best values lie at an end of their range.
    range_ends: tuple[RangeEnd, ...] = ()


def dispatch(
    config: StudyConfig,
    console: Console,
    take_devices: Callable[[], DevicesTaken],
    locks: DeviceLocks,
    inbox: Inbox,
    launcher: StudyLauncher,
    pruner: BasePruner,
    metrics: MetricsServer | None = None,
    other_view: AbstractContextManager[View] | None = None,
    lent: Lent | None = None,
) -> StudyEnd:
    """Opens the database and the channel, and dispatches until the end.

    Args:
        config: The study.
        console: Shows progress.
        take_devices: Returns the devices, once trials could start; waits until there are some.
        locks: Claims them.
        inbox: Receives all events.
        launcher: Starts workers.
        pruner: The study's pruner.
        metrics: Receives metrics; None to serve none.
        other_view: Shows progress; None chooses one that suits the console.
        lent: The allocation in which this process runs; None outside of one.

    Raises:
        TunerError: With a message for the user.
    """
    with ExitStack() as stack:
        database = watched(open_database(config.storage))
        stack.callback(database.close)
        stack.enter_context(store_errors(database.shown_url))
        # First, so that a program that cannot be called leaves no study behind, whose space could
        # then not be changed any more.
        for remark in check_program(launcher, config):
            console.print(remark, highlight=False, markup=False, soft_wrap=True)
        say = partial(console.print, highlight=False, markup=False, soft_wrap=True)
        transfers = stack.enter_context(open_transfers(config, launcher.guard, say))
        # Not before: other users' trials save and end for them.
        taken = take_devices()
        host = taken.host
        study = _open_study(stack, config, database, pruner, host, console, lent)
        search = study.search
        # Training must not wait for a database that hangs.
        database.access.wait_at_most(DATABASE_PATIENCE_S)
        inbox.when_idle(search.scheduler.read_ahead)
        stack.enter_context(_suggestions_aside(search, inbox, launcher.guard))
        workplace = _open_workplace(
            stack, config, database, taken, locks, inbox, launcher, lent, transfers
        )
        view = stack.enter_context(other_view or view_of(config, console))
        files = StudyFiles(folder=config.home, study=config.study)
        shown = _informed(view, config, files, metrics, search)
        if lent is not None:
            shown = _lent_view(shown, lent, config, host, study.recorder.dispatcher_id)
        trackers = stack.enter_context(Trackers(shown, files.trackers_log))
        hooks = stack.enter_context(Hooks(_hook_terms(config), trackers, groups=launcher.guard))
        trackers.start(_tracker_jobs(study))
        result = _run(study, workplace, view, hooks, trackers, inbox)
        confirmation = None
        if config.confirm is not None:
            read = partial(read_confirmation, study=config.study)
            confirmation = database.access.run(read)
        range_ends = _range_ends(database, search.study_id)
    return StudyEnd(
        result=result,
        best=search.best,
        exit_code=_exit_code(result),
        confirmation=confirmation,
        front=search.incumbent.front(),
        range_ends=range_ends,
    )


def _range_ends(database: Database, study_id: int) -> tuple[RangeEnd, ...]:
    try:
        found = database.access.run(partial(read_range_ends, study_id=study_id))
    except (SQLAlchemyError, Unavailable):
        return ()  # The study has ended: a hint is not worth an error.
    return tuple(found)


def _lent_view(
    shown: View, lent: Lent, config: StudyConfig, host: HostDevices, dispatcher_id: int
) -> View:
    """In an allocation: reports progress to the engine, and possibly requests more nodes."""
    shown = ProgressView(shown, lent.engine, lent.allocation.name)
    if not lent.adapts:
        return shown
    from tuner.compose.allocations.adaptation import AdaptationView

    return AdaptationView(
        shown, config, lent, n_devices=len(host.devices), dispatcher_id=dispatcher_id
    )


def _informed(
    view: View,
    config: StudyConfig,
    files: StudyFiles,
    metrics: MetricsServer | None,
    search: StudySearch,
) -> View:
    """The view, with the other consumers of notices: Prometheus, and the best trial's trace."""
    shown: View = view if metrics is None else FiguresView(view, metrics.publish)
    if config.trial.profile is not None and config.trial.profile.trial == BEST:
        best = search.best.number if search.best is not None else None
        shown = BestProfile(shown, files.trial, best)
    return shown


def _open_study(
    stack: ExitStack,
    config: StudyConfig,
    database: Database,
    pruner: BasePruner,
    host: HostDevices,
    console: Console,
    lent: Lent | None,
) -> OpenStudy:
    """Opens the study and shows remarks on it; the stack closes it."""
    say = partial(console.print, highlight=False, markup=False, soft_wrap=True)
    if line := database.access.run(connections_remark):
        say(line)
    study = open_study(config, database, pruner, host, say, lent)
    if study.folder is not None:
        stack.callback(study.folder.close)
        if study.folder.note:
            say(study.folder.note)
    if config.transfer:
        say(told(study.begun_with, config))
    return study


def _run(
    study: OpenStudy,
    workplace: Workplace,
    view: View,
    hooks: Hooks,
    trackers: Trackers,
    inbox: Inbox,
) -> Result:
    """Dispatches until the end, runs `confirm` if configured, and ends trackers and hooks."""
    dispatcher = make_dispatcher(study, workplace, hooks)
    confirm_config = study.config.confirm
    with SignalSource(inbox):
        result = dispatcher.run(inbox)
        dispatcher.keep_house()
        if confirm_config is not None and not result.is_cut_short:
            beside = HookedView(view, hooks)
            result = confirm(study, confirm_config, workplace, beside, inbox, result)
        # Trackers and hooks may take minutes, in which other tuners use the devices.
        workplace.locks.close()
        trackers.finish(partial(_is_signalled, inbox))
        hooks.finish(result, study.search.best, partial(_is_signalled, inbox))
    return result


def _open_workplace(
    stack: ExitStack,
    config: StudyConfig,
    database: Database,
    taken: DevicesTaken,
    locks: DeviceLocks,
    inbox: Inbox,
    launcher: StudyLauncher,
    lent: Lent | None,
    transfers: Transfers | None,
) -> Workplace:
    """Objects shared by all studies of this start; the stack closes them."""
    host = taken.host
    channel = ChannelServer(inbox, launcher.folder)
    stack.callback(channel.close)
    leasing = _leasing(config, host, locks)
    stack.callback(leasing.supply.close)
    clock = SystemClock()
    sampler = Sampler(open_telemetry, host.all_devices, clock, every_s=config.usage.every_s)
    stack.callback(sampler.close)
    sampler.start()
    return Workplace(
        database=database,
        host=host,
        launcher=launcher,
        channel=channel,
        leasing=leasing,
        clock=clock,
        sampler=sampler,
        reselection=taken.reselection,
        lent=lent,
        locks=locks,
        seat=locks.seat if isinstance(locks, SharedLocks) else None,
        transfers=transfers,
    )


@contextmanager
def _suggestions_aside(search: StudySearch, inbox: Inbox, guard: Guard) -> Iterator[None]:
    """Gives a slow sampler a process of its own."""
    whole = search.study.sampler
    prior = whole if isinstance(whole, PriorSampler) else None
    sampler = out_of_process(whole if prior is None else prior.inner)
    if sampler is None:
        yield
        return

    def receive() -> Iterable[Event]:
        sampler.receive()
        if sampler.is_lost:
            inbox.forget(sampler)
        return ()

    if prior is None:
        search.study.sampler = sampler
    else:
        prior.inner = sampler
    guard.watch(sampler.pid)
    inbox.watch(sampler, receive)
    try:
        yield
    finally:
        if not sampler.is_lost:
            inbox.forget(sampler)
        sampler.close()
        guard.release(sampler.pid)


def check_program(launcher: StudyLauncher, config: StudyConfig) -> tuple[str, ...]:
    """Imports the program in the environment of its trials.

    Returns:
        Notes to show.

    Raises:
        ConfigError: If it cannot be imported or called.
    """
    try:
        space = config.search_space
        names = space.names if isinstance(space, SearchSpace) else ()
        return launcher.check(program_of(config), names)
    except LaunchError as error:
        raise ConfigError(str(error), file=config.file) from error


def _leasing(config: StudyConfig, host: HostDevices, locks: DeviceLocks) -> Leasing:
    pool = DevicePool(host.devices)
    watch = DeviceWatch(host.probe)
    is_learned = isinstance(rule_of(config), LearnedWidth)
    sharing = Sharing(host.all_devices) if is_learned else None
    return Leasing(
        pool=pool,
        watch=watch,
        rule=rule_of(config),
        widths=widths_of(config),
        memory=GpuMemory(pool, watch, sharing),
        standby=_standby(config, host, locks),
        sharing=sharing,
    )


def _standby(config: StudyConfig, host: HostDevices, locks: DeviceLocks) -> Standby | None:
    """Only `auto` yields to foreign processes; all studies yield to other users' shares."""
    is_of_gpus = any(device.kind is not DeviceKind.CPU for device in host.devices)
    is_auto = isinstance(config.devices, AutoDevices)
    if not isinstance(locks, SharedLocks) and not (is_of_gpus and is_auto):
        return None
    standby = Standby(host.probe, locks, max_devices=host.max_devices, minds_others=is_auto)
    for device, reason in host.selection.standby:
        standby.add(device, reason)
    return standby


def view_of(config: StudyConfig, console: Console) -> AbstractContextManager[View]:
    """A live view in a terminal, else lines."""
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveView(console, config.study)
    return PlainView(console.file)


def _hook_terms(config: StudyConfig) -> HookTerms:
    files = StudyFiles(folder=config.home, study=config.study)
    return HookTerms(
        commands={
            Hook(key): resolve_argv(argv, config.folder) for key, argv in config.hooks.items()
        },
        study=config.study,
        folder=config.folder,
        log=files.hooks_log,
    )


def _tracker_jobs(study: OpenStudy) -> list[Job]:
    config, search = study.config, study.search
    files = StudyFiles(folder=config.home, study=config.study)
    return [
        Job(
            tracker=name,
            target=tracker.target,
            arguments=tracker.arguments,
            storage=config.storage,
            study_id=search.study_id,
            study=config.study,
            study_key=search.key.id,
            objectives=tuple(config.objectives),
            dispatcher_id=study.recorder.dispatcher_id,
            folder=str(config.folder),
            state_folder=str(files.trackers),
        )
        for name, tracker in config.track.items()
    ]


def _is_signalled(inbox: Inbox, patience_s: float) -> bool:
    return any(isinstance(event, SignalReceived) for event in inbox.drain(patience_s))


_EXIT_OF = {
    Leave.NOTICE: EXIT_COME_BACK,
    Leave.IDLE: EXIT_BUDGET_REACHED,
    Leave.COMMAND: EXIT_BUDGET_REACHED,
    Leave.TOO_SHORT: EXIT_BAD_INPUT,
}


def _exit_code(result: Result) -> int:
    if result.leave is not None:
        return _EXIT_OF[result.leave]
    if result.is_interrupted:
        return EXIT_INTERRUPTED
    if result.is_hopeless or result.is_stranded:
        return EXIT_STUDY_FAILED
    if not result.n_completed:
        return EXIT_STUDY_FAILED
    return EXIT_BUDGET_REACHED
