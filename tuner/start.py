"""The composition root: puts the parts of a study together, and starts it."""

from __future__ import annotations

import hashlib
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass

from optuna.pruners import BasePruner
from rich.console import Console

from tuner.budget import Budget
from tuner.clock import SystemClock
from tuner.config import StudyConfig
from tuner.devices.locks import DeviceLocks
from tuner.devices.pool import DevicePool
from tuner.dispatcher import Dispatcher, Result, Terms
from tuner.errors import (
    EXIT_BUDGET_REACHED,
    EXIT_INTERRUPTED,
    EXIT_STUDY_FAILED,
    ConfigError,
    LaunchError,
)
from tuner.files import StudyFiles
from tuner.launch.channel import ChannelServer
from tuner.launch.inbox import Inbox, SignalSource
from tuner.launch.local import LocalLauncher, modules_of
from tuner.notices import View
from tuner.prepare import (
    HostDevices,
    check_study,
    draw_seed,
    find_devices,
    import_path_of,
    plan_of,
    program_of,
    worker_environment,
)
from tuner.provenance import git_state, host_facts, package_versions
from tuner.search.samplers import build_sampler
from tuner.search.study import BestTrial, StudySearch
from tuner.store.database import Database, open_database, store_errors
from tuner.store.queries import first_seed
from tuner.store.record import Recorder, StartRecord
from tuner.view.live import LiveView
from tuner.view.plain import PlainView

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyEnd:
    """What to tell people at the end, and the exit code."""

    result: Result
    best: BestTrial | None
    exit_code: int


def run_study(config: StudyConfig, console: Console, environ: Mapping[str, str]) -> StudyEnd:
    """Runs a study to the end of its budget, or until the user stops it.

    Args:
        config: The study.
        console: Where progress is shown: live in a terminal, else as lines.
        environ: The process's environment.

    Raises:
        TunerError: With a message for the user; everything is stopped and recorded by then.
    """
    pruner = check_study(config)
    with ExitStack() as stack:
        locks = stack.enter_context(DeviceLocks())
        host = find_devices(config, environ, locks)
        stack.callback(host.probe.close)
        _announce_devices(console, host)
        inbox = Inbox()
        stack.callback(inbox.close)
        # Started first: it imports torch while the database is opened.
        launcher = stack.enter_context(open_launcher(config, host, inbox, environ))
        database = open_database(config.storage)
        stack.callback(database.close)
        with store_errors(database.shown_url):
            search, recorder, seed = _open_study(config, database, pruner, host)
            check_program(launcher, config)
            channel = ChannelServer(inbox)
            stack.callback(channel.close)
            dispatcher = Dispatcher(
                search=search,
                recorder=recorder,
                launcher=launcher,
                channel=channel,
                pool=DevicePool(host.devices),
                probe=host.probe,
                plan=plan_of(config, seed=seed),
                terms=_terms(config),
                view=stack.enter_context(_view(config, console)),
                clock=SystemClock(),
            )
            with SignalSource(inbox):
                result = dispatcher.run(inbox)
    return StudyEnd(result=result, best=search.best, exit_code=_exit_code(result))


@contextmanager
def open_launcher(
    config: StudyConfig, host: HostDevices, inbox: Inbox, environ: Mapping[str, str]
) -> Iterator[LocalLauncher]:
    """Starts the fork server with the user's modules; ends every worker that is left."""
    files = StudyFiles(folder=config.folder, study=config.study)
    _make_folder(files, config)
    program = program_of(config)
    for folder in reversed(import_path_of(config)):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    launcher = LocalLauncher(
        inbox,
        modules=modules_of(program),
        environment=worker_environment(host.devices, environ),
        log_path=files.preload_log,
        n_spares=len(host.devices),
    )
    try:
        yield launcher
    finally:
        launcher.close()


def check_program(launcher: LocalLauncher, config: StudyConfig) -> None:
    try:
        launcher.check(program_of(config))
    except LaunchError as error:
        raise ConfigError(str(error), file=config.file) from error


def _open_study(
    config: StudyConfig, database: Database, pruner: BasePruner, host: HostDevices
) -> tuple[StudySearch, Recorder, int]:
    storage = database.storage
    stored_id = next(
        (s._study_id for s in storage.get_all_studies() if s.study_name == config.study), None
    )
    stored_seed = first_seed(database, stored_id) if stored_id is not None else None
    n_trials = storage.get_n_trials(stored_id) if stored_id is not None else 0
    seed = config.sampler.seed
    if seed is None:
        seed = stored_seed if stored_seed is not None else draw_seed()
    sampler = build_sampler(
        config.sampler,
        config.search_space,
        seed=_continued(seed, n_trials),
        n_objectives=len(config.objectives),
        file=config.file,
    )
    search = StudySearch(
        storage,
        config.study,
        objectives=config.objectives,
        space=config.search_space,
        sampler=sampler,
        pruner=pruner,
    )
    start = StartRecord(
        study_id=search.study_id,
        host=host_facts(),
        seed=seed,
        study_file=config.text,
        folder=str(config.folder),
        versions=package_versions(),
        git=git_state(config.folder),
    )
    recorder = Recorder(database, start, host.devices, at=SystemClock().now().utc)
    orphans = search.give_back_orphans()
    if orphans:
        _log.info("trials %s were lost by an earlier dispatcher and wait again", orphans)
    return search, recorder, seed


def _continued(seed: int, n_trials: int) -> int:
    """A continued study must not draw the same numbers again that it drew at its start."""
    if n_trials == 0:
        return seed
    return int.from_bytes(hashlib.sha256(f"{seed}+{n_trials}".encode()).digest()[:4], "big") >> 1


def _terms(config: StudyConfig) -> Terms:
    return Terms(
        budget=Budget(
            trials=config.budget.trials,
            time_s=config.budget.time_s,
            device_hours=config.budget.device_hours,
        ),
        retries=config.trial.retries,
        timeout_s=config.trial.timeout_s,
        stop_grace_s=config.trial.stop_grace_s,
    )


def _view(config: StudyConfig, console: Console) -> AbstractContextManager[View]:
    return LiveView(console, config.study) if console.is_terminal else PlainView(console.file)


def _announce_devices(console: Console, host: HostDevices) -> None:
    names = ", ".join(device.label for device in host.devices)
    console.print(f"devices: {names}", highlight=False)
    for left_out in host.selection.left_out:
        console.print(left_out.reason, highlight=False)
    for warning in host.selection.warnings:
        console.print(warning, highlight=False)


def _make_folder(files: StudyFiles, config: StudyConfig) -> None:
    try:
        files.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"Logs go to {files.root}, which cannot be made: {error.strerror}. "
            "Make the study file's folder writable, or copy the file to one that is.",
            file=config.file,
        ) from error


def _exit_code(result: Result) -> int:
    if result.is_interrupted:
        return EXIT_INTERRUPTED
    if result.n_failed and not (result.n_completed or result.n_pruned):
        return EXIT_STUDY_FAILED
    return EXIT_BUDGET_REACHED
