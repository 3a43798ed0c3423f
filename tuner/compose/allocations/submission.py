"""`tuner submit`, `scale` and `cancel`: allocations for a study, recorded in its database."""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import sqlalchemy as sa

from tuner.actions.commands import whoever_asks
from tuner.checkpoints.paths import StudyFiles
from tuner.compose.allocations.lent import engine_config
from tuner.compose.allocations.look import refresh
from tuner.compose.allocations.trial_time import check_trial_time
from tuner.compose.programs.program_text import check_text
from tuner.compose.study_plan import check_study
from tuner.compose.workplace import make_study
from tuner.config import StudyConfig
from tuner.config.sections.engine import EngineConfig, NodeRange
from tuner.domain.allocation import Allocation, AllocationState
from tuner.engines.code_snapshot import Snapshot, take_snapshot
from tuner.engines.port import AllocationOrder, Engine, KnowsNodes
from tuner.engines.registry import open_engine
from tuner.errors import ConfigError, EngineError
from tuner.queries.allocations import read_allocations
from tuner.store.connection.database import Database, open_database
from tuner.store.records.allocations import (
    Submission,
    forget_allocations,
    forget_interrupted,
    insert_allocations,
    stored_numbers,
)
from tuner.store.records.dispatchers.starts import lock_study

#: Folders of each machine's own.
_OWN_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm", "/run")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A planned submission."""

    config: StudyConfig
    settings: EngineConfig
    engine: Engine
    order: AllocationOrder
    #: Remarks to show.
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of a study's allocations."""

    study: str
    engine: str
    new: tuple[Allocation, ...] = ()
    #: Asked to end.
    ending: tuple[str, ...] = ()
    #: Open allocations, including new ones.
    now: tuple[Allocation, ...] = ()
    look: str = ""


def plan_submission(config: StudyConfig, on: str | None, *, adapts: bool = False) -> Plan:
    """Runs all checks that need no engine, and writes the snapshot of the code.

    Args:
        config: The study.
        on: Name of the engine, which overrides the study file.
        adapts: Whether dispatchers request more nodes while trials wait.

    Raises:
        TunerError: If a check fails.
    """
    check_study(config)
    remarks = check_text(config)
    settings = engine_config(config, on)
    engine = open_engine(settings)
    files = StudyFiles(folder=config.home, study=config.study)
    is_image = getattr(engine, "code_is_in_image", False)
    snapshot = None if is_image else take_snapshot(config.folder, files.code)
    if snapshot is None and not is_image:
        remarks.append(
            f"{config.folder} is in no git repository: allocations run the code as it is when they "
            "start."
        )
    if is_image and adapts:
        raise EngineError(
            f"--adapt does not work on {settings.name.value}: its allocations have no rights to "
            f"ask for more. Ask for the most nodes at once: tuner submit {config.file} --nodes 8"
        )
    order = _order(config, settings, files, snapshot, adapts=adapts)
    if is_image:
        order = replace(order, command=_command_of_image(config, settings))
    return Plan(
        config=config, settings=settings, engine=engine, order=order, remarks=tuple(remarks)
    )


def _order(
    config: StudyConfig,
    settings: EngineConfig,
    files: StudyFiles,
    snapshot: Snapshot | None,
    *,
    adapts: bool,
) -> AllocationOrder:
    here = Path.cwd()
    folder = here if snapshot and here.is_relative_to(snapshot.root) else config.folder
    path_of = snapshot.path_of if snapshot else Path
    words = [sys.executable, "-m", "tuner.run", str(path_of(config.path))]
    words += ["--engine", settings.name.value, "--files", str(config.home)]
    words += ["--study", config.study]
    if adapts:
        words.append("--adapt")
    return AllocationOrder(
        study=config.study,
        command=tuple(words),
        folder=path_of(folder),
        home=config.home,
        code=snapshot.folder if snapshot else None,
        log_folder=files.allocation_logs,
        environment=dict(snapshot.environment) if snapshot else {},
        setup=settings.setup,
        devices=settings.devices,
        cpus=settings.cpus,
        memory_bytes=settings.memory_bytes,
        time_s=settings.time_s,
        stop_grace_s=config.trial.stop_grace_s,
    )


def _command_of_image(config: StudyConfig, settings: EngineConfig) -> tuple[str, ...]:
    """The study file is in the image, at the place that it has below this working directory."""
    here = Path.cwd()
    path = config.path.relative_to(here) if config.path.is_relative_to(here) else config.path.name
    words = ("python", "-m", "tuner.run", str(path), "--engine", settings.name.value)
    return (*words, "--study", config.study)


def render(plan: Plan, nodes: NodeRange | None = None) -> str:
    """The script or manifest of a first submission, ready to be applied manually."""
    return plan.engine.render(plan.order, range((nodes or plan.settings.nodes).most))


def check_reach(plan: Plan, most: int) -> None:
    """Refuses databases and folders that nodes cannot reach.

    Raises:
        ConfigError: If a database or a folder exists on this machine only.
    """
    config = plan.config
    url = sa.make_url(config.storage)
    if url.get_backend_name() == "sqlite" and most > 1:
        problem = (
            f"is an SQLite file, which one dispatcher at a time can use, but {most} nodes are "
            "asked for. Use a server, such as one of `tuner db serve`, or one node."
        )
        raise ConfigError(problem, file=config.file, key="storage")
    if isinstance(plan.engine, KnowsNodes) and plan.engine.nodes_are_here():
        return
    if url.get_backend_name() != "sqlite" and _is_loopback(url.host):
        problem = (
            f"is on {url.host or 'a local socket'}, which is another machine on each node. Name "
            "the machine of the database by an address that nodes reach."
        )
        raise ConfigError(problem, file=config.file, key="storage")
    own = next((each for each in _OWN_FOLDERS if config.home.is_relative_to(each)), None)
    brings_files = any(
        getattr(plan.engine, name, False) for name in ("copies_files", "code_is_in_image")
    )
    if own is not None and not brings_files:
        raise ConfigError(
            f"The study is in {config.home}, but each machine has its own {own}. Move it to a "
            "folder that the nodes share.",
            file=config.file,
        )


def _is_loopback(host: str | None) -> bool:
    if not host or host == "localhost" or host.startswith("/"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.endswith(".localhost")


def submit(plan: Plan, nodes: NodeRange | None = None) -> Change:
    """Submits the maximum number of nodes, less those that the study has or waits for.

    Args:
        plan: What to submit.
        nodes: Overrides the study file's nodes.

    Raises:
        TunerError: If a check fails or the engine refuses; then nothing is submitted.
    """
    most = (nodes or plan.settings.nodes).most
    check_reach(plan, most)
    plan.engine.check(plan.order)
    return submit_up_to(plan, most)


def submit_up_to(plan: Plan, most: int) -> Change:
    """Submits allocations until there are `most`; the engine is not asked to check them first.

    Raises:
        TunerError: If no trial fits or the engine refuses; then nothing is submitted.
    """
    database, study_id = make_study(plan.config)
    try:
        check_trial_time(plan.config.file, plan.order, database, study_id)
        refresh(database, study_id, plan.engine, plan.order.study)
        return _submit_missing(plan, database, study_id, most)
    finally:
        database.close()


def _submit_missing(plan: Plan, database: Database, study_id: int, most: int) -> Change:
    """Rows first, so that two that submit at once do not ask for twice as many."""
    submission = Submission(
        engine=plan.engine.name,
        n_devices=plan.order.devices,
        submitted_by=whoever_asks(),
        at=datetime.now(UTC),
    )
    numbers = database.access.run(
        partial(_reserve, study_id=study_id, most=most, submission=submission)
    )
    new: tuple[Allocation, ...] = ()
    if numbers:
        try:
            new = plan.engine.submit(plan.order, numbers)
        except EngineError:
            database.access.run(partial(forget_allocations, study_id=study_id, numbers=numbers))
            raise
    now = refresh(database, study_id, plan.engine, plan.order.study)
    return Change(
        study=plan.order.study,
        engine=plan.engine.name,
        new=new,
        now=tuple(each for each in now if not each.state.is_over),
        look=plan.engine.look_command(plan.order.study),
    )


def _reserve(
    connection: sa.Connection, *, study_id: int, most: int, submission: Submission
) -> list[int]:
    """Numbers of new allocations, recorded as pending."""
    lock_study(connection, study_id)
    forget_interrupted(connection, study_id, submission.at)
    known = stored_numbers(connection, study_id)
    n_there = sum(not state.is_over for state in known.values())
    first = max(known, default=-1) + 1
    numbers = list(range(first, first + max(0, most - n_there)))
    new = [Allocation(number=number, name="", state=AllocationState.PENDING) for number in numbers]
    insert_allocations(connection, study_id, new, submission)
    return numbers


def scale(plan: Plan, wanted: NodeRange) -> Change:
    """Submits more allocations, or ends some: first those that wait, then idle ones.

    Args:
        plan: The study's plan.
        wanted: The minimum and maximum number of allocations.

    Raises:
        TunerError: If the engine refuses.
    """
    check_reach(plan, wanted.most)
    there = _there(plan)
    if len(there) < wanted.least:
        plan.engine.check(plan.order)
        return submit_up_to(plan, wanted.least)
    n_ending = max(0, len(there) - wanted.most)
    ending = _least_needed(there, _n_trials(plan) if n_ending else {})[:n_ending]
    return _end(plan, [each.name for each in ending if each.state is not AllocationState.ENDING])


def _there(plan: Plan) -> list[Allocation]:
    every = plan.engine.allocations(plan.order.study)
    return [each for each in every if not each.state.is_over]


def _n_trials(plan: Plan) -> dict[str, int]:
    """Number of running trials in each known allocation, by name."""
    database = open_database(plan.config.storage, read_only=True)
    try:
        study_id = database.storage.get_study_id_from_name(plan.order.study)
        with database.engine.connect() as connection:
            stored = read_allocations(connection, study_id)
    except KeyError:
        return {}
    finally:
        database.close()
    return {each.name: len(each.trials) for each in stored if each.engine == plan.engine.name}


def _least_needed(there: Sequence[Allocation], n_trials: Mapping[str, int]) -> list[Allocation]:
    """Allocations in order of removal: ending, pending, then those with the fewest trials.

    Args:
        there: Open allocations.
        n_trials: Running trials of each, by name.
    """
    begin = datetime.min.replace(tzinfo=UTC)
    return sorted(
        there,
        key=lambda each: (
            each.state is AllocationState.ENDING,
            each.state is AllocationState.PENDING,
            -n_trials.get(each.name, 0),
            each.started_at or begin,
            each.number,
        ),
        reverse=True,
    )


def end_all(plan: Plan) -> Change:
    """Takes pending allocations out of the engine's queue; in running ones trials save."""
    return _end(plan, [each.name for each in _there(plan)])


def _end(plan: Plan, names: Sequence[str]) -> Change:
    plan.engine.cancel(names)
    database = open_database(plan.config.storage)
    try:
        study_id = database.storage.get_study_id_from_name(plan.order.study)
        now = refresh(database, study_id, plan.engine, plan.order.study)
    except KeyError:
        now = plan.engine.allocations(plan.order.study)
    finally:
        database.close()
    return Change(
        study=plan.order.study,
        engine=plan.engine.name,
        ending=tuple(names),
        now=tuple(each for each in now if not each.state.is_over),
        look=plan.engine.look_command(plan.order.study),
    )
