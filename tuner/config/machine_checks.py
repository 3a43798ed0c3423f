"""Whether this machine can do what a study file asks: its programs and its devices."""

from __future__ import annotations

import difflib
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from tuner.config.study import StudyConfig
from tuner.devices.device import Device, DeviceKind
from tuner.errors import ConfigError
from tuner.template import places

_OUR_PYTHON = ("python", "python3")


def resolve_argv(argv: Sequence[str], folder: Path) -> list[str]:
    """A command as it is started, with the program made definite.

    `python` and `python3` mean the interpreter that runs the tuner, so that a trial has the
    packages that the tuner sees, also where no virtual environment is activated. A program with
    a slash begins in the study file's folder. Anything else is left to PATH.

    Args:
        argv: The filled command.
        folder: The study file's folder.
    """
    program, *words = argv
    if program in _OUR_PYTHON:
        return [sys.executable, *words]
    if os.sep in program:
        program = str(folder / Path(program).expanduser())
    return [program, *words]


def check_command_exists(config: StudyConfig) -> None:
    """Refuses a command whose program is not there.

    Raises:
        ConfigError: If it is not on PATH, or not an executable file.
    """
    command = config.trial.command
    if command is None or places(command[0]):
        return
    program = resolve_argv(command, config.folder)[0]
    if shutil.which(program) is None:
        raise ConfigError(
            _missing_program(command[0], program), file=config.file, key="trial.command[0]"
        )


def _missing_program(written: str, program: str) -> str:
    if Path(program).is_file():
        return f"is {written!r}, which is not executable. Run: chmod +x {program}"
    if os.sep in program:
        return f"is {written!r}, but there is no program {program}. Correct the path."
    close = difflib.get_close_matches(written, _OUR_PYTHON, n=1, cutoff=0.7)
    hint = f"Did you mean '{close[0]}'?" if close else "Install it, or give its path."
    return f"is {written!r}, but there is no such program on PATH. {hint}"


def check_resources(config: StudyConfig, devices: Sequence[Device]) -> None:
    """Refuses more devices per trial than there are, or than this version can give.

    Args:
        config: The study.
        devices: The devices of this machine that the study may use.

    Raises:
        ConfigError: Naming `trial.resources.gpus` or `trial.resources.cpus`.
    """
    resources = config.trial.resources
    if resources is None:
        return
    if resources.gpus is not None:
        gpus = [each for each in devices if each.kind is not DeviceKind.CPU]
        _check_enough(config, resources.gpus, gpus)
    kind, wanted = ("gpus", resources.gpus) if resources.gpus else ("cpus", resources.cpus)
    if wanted != 1:
        raise ConfigError(
            f"is {wanted:g}, but this version runs one device per trial. Use 1.",
            file=config.file,
            key=f"trial.resources.{kind}",
        )


def _check_enough(config: StudyConfig, wanted: float, gpus: Sequence[Device]) -> None:
    if wanted <= len(gpus):
        return
    key = "trial.resources.gpus"
    if not gpus:
        problem = (
            f"is {wanted:g}, but this machine has no GPU. "
            "Use resources: {cpus: 1}, or remove trial.resources."
        )
        raise ConfigError(problem, file=config.file, key=key)
    numbers = ", ".join(_number(gpu) for gpu in gpus)
    have = f"{len(gpus)} GPU{'s' if len(gpus) > 1 else ''} ({numbers})"
    problem = f"is {wanted:g}, but this machine has {have}. Use {_up_to(len(gpus))}."
    raise ConfigError(problem, file=config.file, key=key)


def _number(gpu: Device) -> str:
    return str(gpu.index) if gpu.kind is DeviceKind.GPU else gpu.label


def _up_to(n: int) -> str:
    """`1`, `1 or 2`, `1, 2 or 3`."""
    numbers = [str(number) for number in range(1, n + 1)]
    return " or ".join(filter(None, [", ".join(numbers[:-1]), numbers[-1]]))
