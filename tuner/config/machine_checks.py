"""Checks that this machine has the programs and devices of a study file."""

from __future__ import annotations

import difflib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tuner.checkpoints.object_store.bucket import install_text, is_installed
from tuner.checkpoints.paths import expanded
from tuner.config.notation.command_template import ENV_SWEEP, places
from tuner.config.sections.resources import possible_widths
from tuner.config.study import StudyConfig
from tuner.devices.allocation.width import (
    WHOLE,
    Devices,
    FixedWidth,
    LearnedWidth,
    MemoryShare,
    Share,
    Width,
    WidthByParameter,
    WidthRule,
    n_devices_of,
    parts_on,
)
from tuner.devices.device import Device, DeviceKind
from tuner.devices.occupancy import size_text
from tuner.errors import ConfigError
from tuner.search_spaces import SearchSpace

STORE_KEY = "checkpoints.store"
_INTERPRETER = re.compile(r"python(\d+(\.\d+)?)?|bash|sh|dash|zsh|Rscript|julia|perl|ruby|node")
#: Options of interpreters that take no value; all others may.
_PLAIN_OPTION = re.compile(r"-[uBOsSEIqv]+")
_READS_PARAMETERS = re.compile(rb"\btuner\b|TUNER_|environ|getenv")
_PYTHONS = ("python", "python3")
_VERSION_TIMEOUT_S = 10.0
_MAX_VERSION = 60


def resolve_argv(argv: Sequence[str], folder: Path, search_path: str | None = None) -> list[str]:
    """A command with its program resolved.

    A program with a slash is relative to the study file's folder. Any other is searched in PATH, as
    in a shell: `python` is that of the user's environment. If PATH has no `python` or `python3`, it
    is the interpreter that runs the tuner.

    Args:
        argv: The filled command.
        folder: The study file's folder.
        search_path: The PATH of the command; None for that of this process.
    """
    program, *words = argv
    if os.sep in program:
        program = str(folder / expanded(program))
    elif program in _PYTHONS and shutil.which(program, path=search_path) is None:
        program = sys.executable
    return [program, *words]


def search_path_of(config: StudyConfig) -> str | None:
    """The PATH of the command; None if it is that of this process, or differs between trials."""
    search_path = config.trial.env.get("PATH")
    return None if search_path is None or places(search_path) else search_path


def interpreter_line(config: StudyConfig) -> str:
    """The Python that a command starts, and its version, as text; empty for other programs."""
    command = config.trial.command
    if command is None or command[0] not in _PYTHONS:
        return ""
    search_path = search_path_of(config)
    program = resolve_argv(command, config.folder, search_path)[0]
    found = shutil.which(program, path=search_path) or program
    version = _version_of(found)
    line = f"command: {command[0]} is {found}" + (f" ({version})" if version else "")
    if Path(found).parent != Path(sys.executable).parent:
        line += f", from PATH; the tuner runs with {sys.executable}"
    return line


def _version_of(program: str) -> str:
    """A version such as `Python 3.12.1`; empty if it prints none."""
    try:
        said = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return ""
    return said.stdout.strip()[:_MAX_VERSION]


def check_command_exists(config: StudyConfig) -> None:
    """Refuses a command, or a hook, whose program does not exist.

    Raises:
        ConfigError: If it is not on PATH, or not an executable file.
    """
    command = config.trial.command
    if command is not None and not places(command[0]):
        _check_program(config, command, "trial.command")
    for key, argv in config.hooks.items():
        _check_program(config, argv, key)


def check_store_packages(config: StudyConfig) -> None:
    """Checks the packages for an object store.

    Raises:
        ConfigError: If the packages for `checkpoints.store` are not installed.
    """
    address = config.checkpoints.store
    if address is not None and not is_installed(address):
        raise ConfigError(install_text(address), file=config.file, key=STORE_KEY)


def check_script_exists(config: StudyConfig) -> None:
    """Refuses a command whose Python or shell script does not exist.

    Raises:
        ConfigError: If the interpreter's script does not exist.
    """
    command = config.trial.command
    number = None if command is None else script_place(command)
    if command is None or number is None or places(command[number]):
        return
    written = command[number]
    path = config.folder / expanded(written)
    if path.suffix == ".ipynb":
        problem = (
            f"is {written!r}, a notebook, which an interpreter cannot run. Convert it: jupyter "
            f"nbconvert --to script {written}. Or tune a function in the notebook itself: "
            "tuner.tune(train, ...)"
        )
        raise ConfigError(problem, file=config.file, key=f"trial.command[{number}]")
    if path.exists():
        return
    problem = f"is {written!r}, but there is no file {path}. {_other_script(path, written, config)}"
    raise ConfigError(problem, file=config.file, key=f"trial.command[{number}]")


def script_place(command: Sequence[str]) -> int | None:
    """Index of the script in an interpreter's command; None if it has none."""
    if not _INTERPRETER.fullmatch(Path(command[0]).name):
        return None
    number = 1
    while number < len(command) and command[number].startswith("-"):
        if not _PLAIN_OPTION.fullmatch(command[number]):
            return None  # -m, -c, or an option with a value of its own.
        number += 1
    return number if number < len(command) else None


def _other_script(path: Path, written: str, config: StudyConfig) -> str:
    here = Path.cwd() / written
    if here.exists():
        meant = os.path.relpath(here, config.folder)
        return f"Paths begin in the folder of the study file. Write {meant}"
    names = [each.name for each in path.parent.glob("*")] if path.parent.is_dir() else []
    close = difflib.get_close_matches(path.name, names, n=1)
    return f"Did you mean '{Path(written).with_name(close[0])}'?" if close else "Correct the path."


def remarks(config: StudyConfig) -> list[str]:
    """Probable mistakes, as text; the study runs nevertheless."""
    space = config.search_space
    notes = space.notes if isinstance(space, SearchSpace) else ()
    return [*notes, *filter(None, [unused_parameters(config)])]


def unused_parameters(config: StudyConfig) -> str:
    """Names of parameters that never reach a command's program; empty for none.

    Only if the script can be read and does not read them in another way: with `tuner.current()`, or
    from the environment (`TUNER_PARAM_LR`).
    """
    command, space = config.trial.command, config.search_space
    if command is None or not isinstance(space, SearchSpace):
        return ""
    texts = [*command, *config.trial.env.values()]
    used = {name for text in texts for name in places(text)}
    unused = [each.name for each in space.parameters if each.name not in used]
    is_swept = ENV_SWEEP in config.trial.env
    if not unused or is_swept or _takes_them_itself(config, command):
        return ""
    name = unused[0]
    are = f"{', '.join(unused)} {'is' if len(unused) == 1 else 'are'}"
    return (
        f"search_space: {are} in no place of trial.command, so that the program does not get "
        f'{"it" if len(unused) == 1 else "them"}. Add an argument, such as "--{name}={{{name}}}".'
    )


def _takes_them_itself(config: StudyConfig, command: Sequence[str]) -> bool:
    number = script_place(command)
    if number is None or places(command[number]):
        return True
    try:
        text = (config.folder / expanded(command[number])).read_bytes()
    except OSError:
        return True
    return _READS_PARAMETERS.search(text) is not None


def _check_program(config: StudyConfig, argv: Sequence[str], key: str) -> None:
    search_path = search_path_of(config) if key == "trial.command" else None
    program = resolve_argv(argv, config.folder, search_path)[0]
    if shutil.which(program, path=search_path) is None:
        problem = _missing_program(argv[0], program)
        raise ConfigError(problem, file=config.file, key=f"{key}[0]")


def _missing_program(written: str, program: str) -> str:
    if os.sep not in written and os.path.isfile(program):
        # Written by users who expect the current folder on PATH.
        first = f"python, {written}" if written.endswith(".py") else f"./{written}"
        return (
            f"is {written!r}, a file of the study's folder, but a program without a slash is "
            f"searched for on PATH. Write command: [{first}, ...]"
        )
    if os.path.isfile(program):
        return f"is {written!r}, which is not executable. Run: chmod +x {shlex.quote(program)}"
    if os.sep in program:
        return f"is {written!r}, but there is no program {program}. Correct the path."
    close = difflib.get_close_matches(written, _PYTHONS, n=1, cutoff=0.7)
    hint = f"Did you mean '{close[0]}'?" if close else "Install it, or give its path."
    return f"is {written!r}, but there is no such program on PATH. {hint}"


def check_resources(config: StudyConfig, devices: Sequence[Device]) -> None:
    """Refuses trials that are wider than the whole machine.

    If other machines may work on the study too, it is enough that some trials fit.

    Args:
        config: The study.
        devices: The devices that the study may use, now or later.

    Raises:
        ConfigError: For `trial.resources.gpus`, `.cpus` or `.memory`, or `budget.energy`.
    """
    if config.budget.energy_kwh is not None and not any(
        each.kind is not DeviceKind.CPU for each in devices
    ):
        problem = (
            "is given, but CPU slots do not tell what they draw, so that it would never be "
            "reached. Give budget.time or budget.device_hours."
        )
        raise ConfigError(problem, file=config.file, key="budget.energy")
    resources = config.trial.resources
    if resources is None:
        return
    is_cpu, usable = resources.cpus is not None, _usable(config, devices)
    widths = possible_widths(resources.rule, config.search_space)
    left = _left_to_others(config, usable)
    if _is_shared(config) and left and left != list(widths):
        return
    problem = _problem(resources.rule, widths, usable, is_cpu=is_cpu, n_max=config.max_gpus)
    if problem:
        key = f"trial.resources.{resources.key}"
        raise ConfigError(problem, file=config.file, key=key)


def what_is_left_to_others(config: StudyConfig, devices: Sequence[Device]) -> str:
    """The trials of a shared study that this machine cannot run, as text; empty for none.

    Args:
        config: The study, which has passed `check_resources`.
        devices: The devices that the study may use, now or later.
    """
    usable = _usable(config, devices)
    numbers = sorted({n_devices_of(width) for width in _left_to_others(config, usable)})
    if not numbers:
        return ""
    return (
        f"trials that need {' or '.join(map(str, numbers))} devices are left to other dispatchers "
        f"of the study: this one has {len(usable)}"
    )


def _is_shared(config: StudyConfig) -> bool:
    """Whether several machines may work on the study at a time."""
    return not config.storage.startswith("sqlite")


def _usable(config: StudyConfig, devices: Sequence[Device]) -> list[Device]:
    resources = config.trial.resources
    is_cpu = resources is not None and resources.cpus is not None
    usable = [each for each in devices if (each.kind is DeviceKind.CPU) == is_cpu]
    return usable if config.max_gpus is None else usable[: config.max_gpus]


def _left_to_others(config: StudyConfig, usable: Sequence[Device]) -> list[Width]:
    """Widths that do not fit on this machine."""
    resources = config.trial.resources
    if resources is None:
        return []
    widths = possible_widths(resources.rule, config.search_space)
    return [width for width in widths if n_devices_of(width) > len(usable)]


def _problem(
    rule: WidthRule,
    widths: Sequence[Width],
    usable: Sequence[Device],
    *,
    is_cpu: bool,
    n_max: int | None,
) -> str:
    if not usable:
        return (
            f"is {_written(rule)}, but this machine has no GPU. "
            "Use resources: {cpus: 1}, or remove trial.resources."
        )
    widest = max(widths, key=n_devices_of)
    if n_devices_of(widest) > len(usable):
        shown = _shown_widest(rule, n_devices_of(widest))
        have = _slots(usable) if is_cpu else _gpus(usable, n_max)
        more = f", or more slots: devices: cpu:{n_devices_of(widest)}" if is_cpu else ""
        return f"is {shown}, but {have}. Use {_up_to(len(usable))}{more}."
    if isinstance(widest, MemoryShare) and all(parts_on(widest, d) is None for d in usable):
        largest = max(device.memory_bytes or 0 for device in usable)
        return (
            f"is {size_text(widest.memory_bytes)}, but no GPU here has that much: the largest has "
            f"{size_text(largest)}. Use less."
        )
    return ""


def _written(rule: WidthRule) -> str:
    """As the study file has it."""
    match rule:
        case LearnedWidth():
            return "auto"
        case WidthByParameter(name=name):
            return f"'{{{name}}}'"
        case FixedWidth(width=Devices(n_devices=n)):
            return str(n)
        case FixedWidth(width=Share(parts=parts)):
            return f"{parts / WHOLE:g}"
        case FixedWidth(width=MemoryShare(memory_bytes=memory_bytes)):
            return size_text(memory_bytes)
        case _:
            raise AssertionError(rule)


def _shown_widest(rule: WidthRule, n_devices: int) -> str:
    can_be = f", which can be {n_devices}" if isinstance(rule, WidthByParameter) else ""
    return f"{_written(rule)}{can_be}"


def _gpus(gpus: Sequence[Device], n_max: int | None) -> str:
    if n_max is not None and n_max <= len(gpus):
        return f"max_gpus is {n_max}"
    numbers = ", ".join(_number(gpu) for gpu in gpus)
    return f"this machine has {len(gpus)} GPU{'s' if len(gpus) > 1 else ''} ({numbers})"


def _slots(slots: Sequence[Device]) -> str:
    return f"this study has {len(slots)} CPU slot{'s' if len(slots) > 1 else ''}"


def _number(gpu: Device) -> str:
    return str(gpu.index) if gpu.kind is DeviceKind.GPU else gpu.label


def _up_to(n: int) -> str:
    """`1`, `1 or 2`, `1, 2 or 3`."""
    numbers = [str(number) for number in range(1, n + 1)]
    return " or ".join(filter(None, [", ".join(numbers[:-1]), numbers[-1]]))
