"""Objects shared by the dispatchers of one start, and the construction of a dispatcher."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from optuna.pruners import BasePruner

from tuner.actions.commands import whoever_asks
from tuner.actions.kept_settings import without_outdated
from tuner.checkpoints.object_store.process import Transfers
from tuner.checkpoints.paths import StudyFiles
from tuner.checkpoints.retention import RetentionRule
from tuner.checkpoints.study_folder import StudyFolder
from tuner.checkpoints.trial_folders import TrialFolders
from tuner.compose.allocations.lent import Lent
from tuner.compose.study_plan import HostDevices, draw_seed, plan_of
from tuner.compose.transfer import NOTHING, note, noted, read_earlier
from tuner.config import StudyConfig
from tuner.config.recorded import recorded_text
from tuner.config.sections.trial import OnTimeout, ValueRule
from tuner.devices.locks import DeviceLocks
from tuner.devices.reselection import Reselection
from tuner.dispatch.attempts.activity import Activity
from tuner.dispatch.dispatcher import Dispatcher
from tuner.dispatch.notices import View
from tuner.dispatch.object_store.start import object_store_of
from tuner.dispatch.parts import DispatcherSetup
from tuner.dispatch.supply.leasing import Leasing
from tuner.dispatch.terms import Terms
from tuner.dispatch.upkeep.checkpoint_sweeper import SweepThread
from tuner.dispatch.upkeep.checkpoint_sync import CheckpointSync
from tuner.dispatch.upkeep.telemetry_thread import Sampler
from tuner.errors import StoreError
from tuner.host.clock import SystemClock
from tuner.launch.channel import ChannelServer
from tuner.launch.protocols import StudyLauncher
from tuner.search.defaults import pruner_of, sampler_of
from tuner.search.samplers.transfer import Transferred
from tuner.search.study import StudySearch
from tuner.shares.seat import Seat
from tuner.store.connection.database import Database, open_database
from tuner.store.optuna_tables.storage import BufferedStorage
from tuner.store.records.dispatchers.silence import watch_silent
from tuner.store.records.dispatchers.starts import Sign, StartRecord, has_attempts, open_dispatchers
from tuner.store.records.programs import CODE, other_code_text, other_program_text
from tuner.store.records.provenance import code_state, host_facts, package_versions
from tuner.store.records.queries import first_seed
from tuner.store.records.recorder import Recorder
from tuner.store.schema.revision import alone

#: System attribute of a study whose file names no seed.
SEED_ATTR = "tuner:seed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """Objects that successive dispatchers share."""

    database: Database
    host: HostDevices
    launcher: StudyLauncher
    channel: ChannelServer
    leasing: Leasing
    clock: SystemClock
    sampler: Sampler
    reselection: Reselection
    #: Claims the devices.
    locks: DeviceLocks
    lent: Lent | None = None
    #: None if the machine is not divided among users.
    seat: Seat | None = None
    #: Uploads checkpoints; None if the study file names no object store.
    transfers: Transfers | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenStudy:
    """A study that a dispatcher may work on from now on."""

    config: StudyConfig
    search: StudySearch
    recorder: Recorder
    #: Each attempt's own is derived from it.
    seed: int
    #: The best configurations of earlier studies.
    begun_with: Transferred = NOTHING
    #: Folder of its files, claimed for this process; to be closed at the end.
    folder: StudyFolder | None = None


def make_dispatcher(study: OpenStudy, workplace: Workplace, view: View) -> Dispatcher:
    config, recorder = study.config, study.recorder
    recorder.fleet.leaves_workers = workplace.launcher.leaves_workers
    plan = plan_of(config, seed=study.seed)
    objects = object_store_of(
        config,
        workplace.transfers,
        files=plan.files,
        search=study.search,
        recorder=recorder,
        rule=_retention(config),
        clock=workplace.clock,
    )
    return Dispatcher(
        DispatcherSetup(
            search=study.search,
            recorder=recorder,
            launcher=workplace.launcher,
            channel=workplace.channel,
            leasing=workplace.leasing,
            plan=plan,
            terms=_terms(config, workplace.lent),
            view=view,
            clock=workplace.clock,
            activity=Activity(workplace.leasing.watch, time.monotonic),
            housekeeping=SweepThread(study.search, plan.files, _retention(config), recorder),
            saving=CheckpointSync(plan.files, recorder, objects),
            reselection=workplace.reselection,
            sampler=workplace.sampler,
            folders=TrialFolders(plan.files, study.search.key),
            seat=workplace.seat,
            objects=objects,
        )
    )


def open_study(
    config: StudyConfig,
    database: Database,
    pruner: BasePruner,
    host: HostDevices,
    say: Callable[[str], None],
    lent: Lent | None = None,
) -> OpenStudy:
    """Creates the study if it does not exist, and joins its other dispatchers.

    Args:
        config: The study.
        database: An open database.
        pruner: The study's pruner.
        host: The devices.
        say: Shows why the start waits.
        lent: The allocation in which this process runs; None outside of one.

    Raises:
        TunerError: If the stored study differs, or another process works on it exclusively.
    """
    storage = database.storage
    stored_id = _stored_id(storage, config.study)
    n_trials = storage.get_n_trials(stored_id) if stored_id is not None else 0
    begun_with = _noted(storage, config, stored_id) or read_earlier(config)
    drawn = _seed_to_begin_with(config, database, stored_id)
    search, seed = _open_search(config, database, pruner, drawn, begun_with)
    # First, so that a start that is refused leaves no trace of a dispatcher.
    folder = _claim_folder(config, database, search)
    start = _start_record(config, search.study_id, seed, lent)
    if other := database.access.run(partial(other_program_text, start=start)):
        say(other)
    if other := database.access.run(partial(other_code_text, start=start)):
        say(other)
    recorder = _open_recorder(config, database, start, host, folder, say)
    if n_trials or recorder.n_earlier_starts or seed != drawn:
        search.study.sampler = sampler_of(
            config,
            seed=_later_seed(seed, n_trials, recorder.n_earlier_starts),
            sequence_seed=seed,
            transferred=begun_with.configurations,
        )
    recorder.commands.kept = without_outdated(recorder.commands.kept, config, say)
    if recorder.tried_again:
        say(_retry_text(len(recorder.tried_again)))
    # What dispatchers that died have left waits again.
    search.sync()
    return OpenStudy(
        config=config,
        search=search,
        recorder=recorder,
        seed=seed,
        begun_with=begun_with,
        folder=folder,
    )


def make_study(config: StudyConfig) -> tuple[Database, int]:
    """Creates the study if it does not exist, without a dispatcher.

    Returns:
        The database, to be closed, and the id of the study.

    Raises:
        TunerError: If the database cannot be used, or the stored study differs.
    """
    database = open_database(config.storage)
    try:
        stored_id = _stored_id(database.storage, config.study)
        begun_with = _noted(database.storage, config, stored_id) or read_earlier(config)
        drawn = _seed_to_begin_with(config, database, stored_id)
        search, _ = _open_search(config, database, pruner_of(config), drawn, begun_with)
        return database, search.study_id
    except BaseException:
        database.close()
        raise


def _open_recorder(
    config: StudyConfig,
    database: Database,
    start: StartRecord,
    host: HostDevices,
    folder: StudyFolder,
    say: Callable[[str], None],
) -> Recorder:
    """Records the start; a start that is refused releases the study's folder."""
    try:
        recorder = Recorder(
            database,
            start,
            host.devices,
            clock=SystemClock(),
            budget=config.budget.limits,
            silent=_silent(database, start, say),
        )
        recorder.add_devices(host.all_devices)
        return recorder
    except StoreError:
        folder.close()
        raise


def _retry_text(n_trials: int) -> str:
    trials = "1 failed trial" if n_trials == 1 else f"{n_trials} failed trials"
    return (
        f"No trial of this study has completed or been pruned yet. Retrying {trials} first. "
        "Earlier failures do not count against the budget or as retries."
    )


def _seed_to_begin_with(config: StudyConfig, database: Database, stored_id: int | None) -> int:
    """The study file's seed; else the study's stored one; else a new one."""
    if config.sampler.seed is not None:
        return config.sampler.seed
    stored = first_seed(database, stored_id) if stored_id is not None else None
    return draw_seed() if stored is None else stored


def _open_search(
    config: StudyConfig,
    database: Database,
    pruner: BasePruner,
    seed: int,
    begun_with: Transferred,
) -> tuple[StudySearch, int]:
    """Creates the study if it does not exist.

    Args:
        config: The study.
        database: An open database.
        pruner: The study's pruner.
        seed: Seed of a new study, unless another dispatcher has created it with another one.
        begun_with: The best configurations of earlier studies.

    Returns:
        The study, and the seed from which all its dispatchers derive theirs.
    """
    storage = database.storage
    # Two dispatchers may make the same study at the same instant.
    with alone(database.engine):
        search = StudySearch(
            storage,
            config.study,
            objectives=config.objectives,
            space=config.search_space,
            sampler=sampler_of(config, seed=seed, transferred=begun_with.configurations),
            pruner=pruner,
        )
        if config.transfer and noted(storage, search.study_id) is None:
            note(storage, search.study_id, begun_with)
        if config.sampler.seed is None:
            seed = _agreed_seed(storage, search.study_id, seed)
    return search, seed


def _start_record(config: StudyConfig, study_id: int, seed: int, own: Lent | None) -> StartRecord:
    git = code_state(config.folder, os.environ)
    code = {CODE: git.snapshot} if git.snapshot else {}
    return StartRecord(
        study_id=study_id,
        host=host_facts(),
        seed=seed,
        study_file=recorded_text(config.text),
        folder=str(config.home),
        versions=package_versions() | code,
        git=git,
        allocation=own.allocation if own is not None else None,
        by=whoever_asks(),
    )


def _silent(database: Database, start: StartRecord, say: Callable[[str], None]) -> frozenset[Sign]:
    """On an SQLite file, which has one dispatcher at a time: those that are dead for sure.

    On a server they are watched while this dispatcher works.
    """
    if database.engine.dialect.name != "sqlite":
        return frozenset()
    look = partial(open_dispatchers, study_id=start.study_id)
    return watch_silent(lambda: database.access.run(look), start.host.process, say)


def _claim_folder(config: StudyConfig, database: Database, search: StudySearch) -> StudyFolder:
    has_begun = database.access.run(lambda c: has_attempts(c, search.study_id))
    files = StudyFiles(folder=config.home, study=config.study)
    return StudyFolder(files, search.key, has_begun=has_begun)


def _noted(
    storage: BufferedStorage, config: StudyConfig, stored_id: int | None
) -> Transferred | None:
    if stored_id is None or not config.transfer:
        return None
    return noted(storage, stored_id)


def _stored_id(storage: BufferedStorage, name: str) -> int | None:
    try:
        return storage.get_study_id_from_name(name)
    except KeyError:
        return None


def _agreed_seed(storage: BufferedStorage, study_id: int, drawn: int) -> int:
    """The seed of a study whose file has none; the first of simultaneous starts sets it."""
    agreed = storage.get_study_system_attrs(study_id).get(SEED_ATTR)
    if agreed is None:
        storage.set_study_system_attr(study_id, SEED_ATTR, drawn)
        return drawn
    return int(agreed)


def _later_seed(seed: int, n_trials: int, n_earlier_starts: int) -> int:
    """The seed of a later or parallel start, which must not repeat the first one's numbers."""
    text = f"{seed}+{n_trials}+{n_earlier_starts}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:4], "big") >> 1


def _terms(config: StudyConfig, lent: Lent | None) -> Terms:
    return Terms(
        budget=config.budget.limits,
        retries=config.trial.retries,
        timeout_s=config.trial.timeout_s,
        completes_on_timeout=config.trial.on_timeout is OnTimeout.COMPLETE,
        max_steps=config.trial.max_steps,
        best_report_counts=config.trial.value is ValueRule.BEST,
        stall_timeout_s=config.trial.stall_timeout_s,
        stop_grace_s=config.trial.stop_grace_s,
        widens=config.widen,
        is_repeatable=config.sampler.seed is not None,
        allocation=lent.terms if lent is not None else None,
    )


def _retention(config: StudyConfig) -> RetentionRule:
    checkpoints = config.checkpoints
    return RetentionRule(n_best=checkpoints.n_best, max_bytes=checkpoints.max_disk_bytes)
