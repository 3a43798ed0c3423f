"""Plans a study's start on this machine from its file, without starting anything."""

from __future__ import annotations

import math
import secrets
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from optuna.pruners import BasePruner

from tuner.checkpoints.paths import StudyFiles
from tuner.compose.import_guard import find_shadow
from tuner.compose.programs.unused_calls import refuse_optimize_at_import
from tuner.compose.sharing.devices import (
    divided_slots,
    select_or_wait,
    slots_limits,
    suited_devices,
    take_seat,
)
from tuner.config import StudyConfig
from tuner.config.machine_checks import (
    check_command_exists,
    check_resources,
    check_script_exists,
    check_store_packages,
    resolve_argv,
    search_path_of,
)
from tuner.config.rules import optuna_program_of
from tuner.config.sections.confirm import is_confirmation
from tuner.config.sections.resources import possible_widths
from tuner.devices.allocation.width import (
    ONE,
    WHOLE,
    Devices,
    FixedWidth,
    LearnedWidth,
    Share,
    Width,
    WidthRule,
    n_devices_of,
    parts_on,
    wider,
)
from tuner.devices.cpu_slots.probe import CpuProbe, usable_cores
from tuner.devices.cpu_slots.telemetry import CpuTelemetry
from tuner.devices.device import Device, DeviceKind, DeviceProbe
from tuner.devices.gpu_shares import DividedGpus
from tuner.devices.limits import GpuLimits
from tuner.devices.locks import DeviceLocks
from tuner.devices.request import AutoDevices, CpuSlots, DeviceRequest, parse_device_request
from tuner.devices.reselection import Reselection
from tuner.devices.selection import GpuProbe, Selection
from tuner.devices.usage.readings import Telemetry
from tuner.errors import ConfigError, DeviceError
from tuner.frameworks.optuna_programs.execution import OptunaProgram
from tuner.frameworks.optuna_programs.scan import has_shared_trials
from tuner.frameworks.optuna_programs.variables import (
    ENV_ARGUMENTS,
    ENV_PROGRAM,
    OBJECTIVE_MODULE,
    RANKS_MODULE,
)
from tuner.launch.descriptors import check_descriptors
from tuner.launch.plan import (
    OPENMP_THREADS,
    THREAD_VARIABLES,
    ProfiledSteps,
    ProfilePlan,
    TrialPlan,
)
from tuner.launch.request import (
    ENV_OPENMP_THREADS,
    OPENMP_VARIABLES,
    CommandProgram,
    FunctionProgram,
    Program,
)
from tuner.search.defaults import pruner_of, sampler_of
from tuner.search_spaces import DefineByRunSpace
from tuner.shares.locks import SharedLocks
from tuner.shares.seat import Seat
from tuner.tracking.registry import check_trackers

if TYPE_CHECKING:
    pass

_SEED_BITS = 31


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDevices:
    """The devices that a study got on this host, and how to read them."""

    selection: Selection
    probe: DeviceProbe
    #: The same, if they are GPUs.
    gpus: GpuProbe | None
    #: Maximum number of devices of the study at a time; None for no limit.
    max_devices: int | None = None

    @property
    def devices(self) -> tuple[Device, ...]:
        return self.selection.devices

    @property
    def all_devices(self) -> tuple[Device, ...]:
        """Also those that another program uses now."""
        return (*self.devices, *(device for device, _ in self.selection.standby))


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicesTaken:
    """The devices of a starting study, and the object that changes them later."""

    host: HostDevices
    reselection: Reselection


def check_study(config: StudyConfig) -> BasePruner:
    """Checks that need neither devices nor the database.

    Raises:
        ConfigError: If the sampler, the pruner, the command or the folder is wrong.
    """
    check_command_exists(config)
    check_script_exists(config)
    _check_storage_folder(config)
    refuse_optimize_at_import(config)
    if is_confirmation(config.study):
        problem = (
            f"is {config.study!r}, but studies of such names hold the runs of another one's "
            "leaders (confirm). Choose another name."
        )
        raise ConfigError(problem, file=config.file, key="study")
    if problem := find_shadow({config.folder, Path.cwd()}):
        raise ConfigError(problem, file=config.file)
    check_trackers(config.track, file=config.file)
    check_store_packages(config)
    sampler_of(config, seed=config.sampler.seed or 0)
    return pruner_of(config)


def _check_storage_folder(config: StudyConfig) -> None:
    """Checks the folder of an SQLite database.

    Raises:
        ConfigError: If the file can neither be opened nor created.
    """
    path = Path(config.storage.removeprefix("sqlite:///"))
    if not config.storage.startswith("sqlite:///") or path.name.startswith("file:"):
        return
    if path.is_dir():
        problem = f"is {path}, which is a folder. Name a file in it: sqlite:///{path}/study.db"
        raise ConfigError(problem, file=config.file, key="storage")
    if not path.parent.is_dir():
        problem = (
            f"is {path}, but there is no folder {path.parent}. Run: "
            f"mkdir -p {shlex.quote(str(path.parent))}"
        )
        raise ConfigError(problem, file=config.file, key="storage")


def draw_seed() -> int:
    """A random seed for a study whose file has none."""
    return secrets.randbits(_SEED_BITS)


def find_devices(
    config: StudyConfig, environ: Mapping[str, str], locks: DeviceLocks | None
) -> HostDevices:
    """Chooses this study's devices.

    Args:
        config: The study.
        environ: May have `CUDA_VISIBLE_DEVICES`.
        locks: Claims GPUs against other tuners of this host; None claims none.

    Returns:
        No device but those on standby, where the machine is divided and others have all.

    Raises:
        DeviceError: If requested devices do not exist.
        NotNow: If none of them is free, and the machine is not divided among its users.
        ConfigError: If a trial needs more of them than there are.
    """
    request = _request(config, config.devices)
    seat = locks.seat if isinstance(locks, SharedLocks) else None
    gpus = None if isinstance(request, CpuSlots) else _open_gpus(config, environ, seat)
    limits = _limits(config)
    slots = None
    if isinstance(locks, SharedLocks):
        slots = divided_slots(request, gpus, locks.seat)
        if slots is not None:
            request, limits = AutoDevices(), slots_limits(request, slots)
        take_seat(locks.seat, request, slots or gpus, limits, wants=_most_wanted(config))
    try:
        selection = select_or_wait(request, slots or gpus, limits, locks)
    except DeviceError as error:
        if gpus is not None:
            gpus.close()
        raise type(error)(f"{config.file}: {error}") from error
    if isinstance(locks, SharedLocks):
        locks.seat.look()  # Others see what it has taken.
    found = (*selection.devices, *(device for device, _ in selection.standby))
    if gpus is not None and found[0].kind is DeviceKind.CPU:
        gpus.close()
        gpus = None
    probe = slots or gpus or CpuProbe(len(selection.devices))
    host = HostDevices(selection=selection, probe=probe, gpus=gpus, max_devices=limits.max_devices)
    check_devices(config, host.all_devices)
    return host


def _most_wanted(config: StudyConfig) -> int | None:
    """Number of devices for all trials of the budget at once; None if it has no trial limit.

    A study that takes more than it can use would interrupt other users' trials for nothing.
    """
    n_trials = config.budget.limits.trials
    if n_trials is None:
        return None
    widths = widths_of(config)
    if all(isinstance(width, Share) for width in widths):
        return math.ceil(
            n_trials * max(each.parts for each in widths if isinstance(each, Share)) / WHOLE
        )
    return n_trials * max(map(n_devices_of, widths))


def most_devices(config: StudyConfig, environ: Mapping[str, str], seat: Seat) -> int:
    """Maximum number of devices of a study on a divided machine; at least 1."""
    request = _request(config, config.devices)
    gpus = None if isinstance(request, CpuSlots) else _open_gpus(config, environ, seat)
    try:
        slots = divided_slots(request, gpus, seat)
        if slots is not None:
            n_slots = slots_limits(request, slots).max_devices
            return n_slots or len(slots.devices())
        limits = _limits(config)
        suited = suited_devices(request, gpus, limits) if gpus is not None else ()
        return max(1, min(len(suited), limits.max_devices or len(suited)))
    finally:
        if gpus is not None:
            gpus.close()


def check_devices(config: StudyConfig, devices: Sequence[Device]) -> None:
    """Checks the devices against the study.

    Raises:
        ConfigError: If trials need more devices than these, or these more descriptors than a
            process may open.
    """
    check_resources(config, devices)
    parts = min((width.parts for width in widths_of(config) if isinstance(width, Share)), default=0)
    n_on_each = max(1, WHOLE // parts) if parts else 1
    asked = f"gives {len(devices)} devices"
    if config.devices == CpuSlots(n_slots=len(devices)):
        asked = f"is cpu:{len(devices)}"
    check_descriptors(n_on_each * len(devices), asked=asked, file=config.file)


def reselection_of(
    config: StudyConfig, host: HostDevices, environ: Mapping[str, str], locks: DeviceLocks
) -> Reselection:
    """The object that chooses other devices while the study runs."""
    seat = locks.seat if isinstance(locks, SharedLocks) else None

    def read(value: object) -> DeviceRequest:
        request = _request(config, parse_device_request(value))
        if seat is not None:
            if host.gpus is None or isinstance(request, CpuSlots):
                raise ValueError(
                    f"is {value!r}, but on a machine that divides its devices among its users "
                    "only GPUs can be chosen anew while a study runs."
                )
            take_seat(seat, request, host.gpus, _limits(config))
        return request

    return Reselection(
        lambda: _open_gpus(config, environ, seat),
        locks,
        _limits(config),
        read,
        partial(check_devices, config),
        host.gpus,
        is_divided=seat is not None,
    )


def program_of(config: StudyConfig) -> Program:
    """The program of a trial."""
    space = config.search_space
    define_by_run = space.target if isinstance(space, DefineByRunSpace) else None
    trial = config.trial
    if trial.command is not None:
        return CommandProgram(
            argv=tuple(resolve_argv(trial.command, config.folder, search_path_of(config))),
            environment=trial.env,
            pattern=trial.metrics.regex.pattern if trial.metrics else None,
            space=define_by_run,
        )
    assert trial.function is not None, "the configuration has a function or a command"
    module, _, function = trial.function.partition(":")
    if path := optuna_program_of(trial.function):
        has_ranks = has_shared_trials(config.folder / path)
        module, function = RANKS_MODULE if has_ranks else OBJECTIVE_MODULE, "objective"
    return FunctionProgram(
        module=module, function=function, environment=trial.env, space=define_by_run
    )


def program_variables(config: StudyConfig) -> dict[str, str]:
    """Fork server variables for a program that calls `study.optimize`; empty for others."""
    path = optuna_program_of(config.trial.function or "")
    if path is None:
        return {}
    arguments = tuple(shlex.split(config.trial.env.get(ENV_ARGUMENTS, "")))
    program = OptunaProgram(path=config.folder / path, arguments=arguments, folder=config.folder)
    return {ENV_PROGRAM: program.to_text()}


def plan_of(config: StudyConfig, *, seed: int) -> TrialPlan:
    return TrialPlan(
        program=program_of(config),
        files=StudyFiles(folder=config.home, study=config.study),
        study=config.study,
        seed=seed,
        objectives=tuple(config.objectives),
        is_ddp=config.trial.is_ddp
        and (config.widen or max(map(n_devices_of, widths_of(config))) > 1),
        guards_memory=not isinstance(rule_of(config), LearnedWidth),
        n_newest_kept=config.checkpoints.newest,
        profile=_profile_of(config),
        storage=config.storage,
        space=config.search_space,
    )


def _profile_of(config: StudyConfig) -> ProfilePlan | None:
    wanted = config.trial.profile
    if wanted is None:
        return None
    steps = None
    if wanted.steps is not None:
        first, last = wanted.steps
        steps = ProfiledSteps(first=first, last=last)
    trial = wanted.trial if isinstance(wanted.trial, int) else None
    return ProfilePlan(trial=trial, steps=steps)


def rule_of(config: StudyConfig) -> WidthRule:
    """The rule for a trial's width; one device if the file has none."""
    resources = config.trial.resources
    return resources.rule if resources else FixedWidth(width=ONE)


def widths_of(config: StudyConfig) -> tuple[Width, ...]:
    """All widths that a trial may have."""
    return possible_widths(rule_of(config), config.search_space)


def widening_of(config: StudyConfig, n_devices: int) -> str:
    """The effect of `widen` with this many devices, as text; empty if it is off."""
    if not config.widen:
        return ""
    widths = widths_of(config)
    narrowest = min(map(n_devices_of, widths))
    more = wider(rule_of(config), widths, narrowest)
    if more is None or more > n_devices:
        return f"no trial is widened: a trial has {narrowest} of {n_devices} devices already"
    return (
        "a trial that saves checkpoints continues on more devices (up to "
        f"{n_devices}) once no other waits for them"
    )


def worker_environment(n_devices: int, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of every worker: matching numbers of threads, no CUDA before the fork."""
    n_threads = max(1, usable_cores() // max(1, n_devices))
    threads = {name: str(n_threads) for name in THREAD_VARIABLES if name not in environ}
    openmp = environ.get(OPENMP_THREADS) or threads.pop(OPENMP_THREADS, str(n_threads))
    threads |= dict.fromkeys(OPENMP_VARIABLES, "1") | {ENV_OPENMP_THREADS: openmp}
    # torch.cuda.is_available() in the user's module, imported before the fork, must not
    # initialise CUDA (https://pytorch.org/docs/stable/notes/cuda.html#device-agnostic-code).
    return threads | {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}


def _limits(config: StudyConfig) -> GpuLimits:
    resources = config.trial.resources
    return GpuLimits(
        types=resources.gpu_types if resources else (),
        min_memory_bytes=resources.min_memory_bytes if resources else None,
        max_devices=config.max_gpus,
    )


def _request(config: StudyConfig, devices: DeviceRequest) -> DeviceRequest:
    resources = config.trial.resources
    if resources and resources.cpus is not None and isinstance(devices, AutoDevices):
        return CpuSlots(n_slots=len(CpuProbe().devices()))
    return devices


def _open_gpus(
    config: StudyConfig, environ: Mapping[str, str], seat: Seat | None
) -> GpuProbe | None:
    from tuner.devices.nvidia.probe import (
        open_nvml,  # 70 ms, for who has no GPU or does not ask for it.
    )

    probe = open_nvml(environ.get("CUDA_VISIBLE_DEVICES"))
    if probe is None or seat is None or not seat.rules.gpu_shares:
        return probe
    fits = partial(_fits_share, config)
    return DividedGpus(probe, seat.rules.gpu_shares, fits, seat.has_shares_of)


def _fits_share(config: StudyConfig, device: Device) -> bool:
    """Whether all trials of a study fit into a share of a GPU."""
    if isinstance(rule_of(config), LearnedWidth):
        return False
    return all(
        not isinstance(width, Devices) and parts_on(width, device) is not None
        for width in widths_of(config)
    )


def open_telemetry(devices: Sequence[Device]) -> Telemetry | None:
    """Telemetry for a study's devices, at least one; None if the driver refuses."""
    if devices[0].kind is DeviceKind.CPU:
        return CpuTelemetry(devices)
    from tuner.devices.nvidia.telemetry import open_nvml_telemetry  # As above.

    return open_nvml_telemetry(devices)


def import_path_of(config: StudyConfig) -> list[str]:
    """Search path for the user's modules: the study file's folder and the current one."""
    return [str(config.folder), str(Path.cwd())]
