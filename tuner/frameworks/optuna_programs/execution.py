"""Runs a program in this process, as `python train.py` would."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from tuner.frameworks.optuna_programs.interception import Interception, OptimizeCall, Reached
from tuner.frameworks.optuna_programs.scan import has_shared_trials

if TYPE_CHECKING:
    from tuner.frameworks.optuna_programs.meeting import Meeting

_MAIN = "__main__"


@dataclass(frozen=True, slots=True, kw_only=True)
class OptunaProgram:
    """A file that calls `study.optimize`, and its arguments."""

    path: Path
    arguments: tuple[str, ...] = ()
    #: Working folder.
    folder: Path

    def to_text(self) -> str:
        """For the environment."""
        return json.dumps([str(self.path), list(self.arguments), str(self.folder)])

    @classmethod
    def from_text(cls, text: str) -> OptunaProgram:
        """The inverse of `to_text`."""
        path, arguments, folder = json.loads(text)
        return cls(path=Path(path), arguments=tuple(arguments), folder=Path(folder))


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A program that was run up to `study.optimize`."""

    program: OptunaProgram
    call: OptimizeCall
    interception: Interception
    module: ModuleType
    #: Devices of a trial whose ranks share it, such as `{gpus: 2}`; None for other programs.
    devices_of_ranks: Mapping[str, int] | None = None

    def set_up(self) -> None:
        """Makes this process look as if it had been started with the program."""
        sys.modules[_MAIN] = self.module
        sys.argv[:] = [str(self.program.path), *self.program.arguments]


class NotReached(Exception):
    """The program ended before `study.optimize`."""


def load(program: OptunaProgram) -> Loaded:
    """Runs a program up to its first `study.optimize`.

    Raises:
        NotReached: If it ended before.
    """
    interception = Interception()
    module = main_module(program)
    meeting = meeting_alone(program)
    try:
        with interception.active(), active(meeting), in_folder(program.folder):
            run(program, module)
    except Reached:
        pass
    except BaseException:
        # What follows a `study.optimize` that was not done may fail.
        if interception.call is None:
            raise
    if interception.call is None:
        raise NotReached
    return Loaded(
        program=program,
        call=interception.call,
        interception=interception,
        module=module,
        devices_of_ranks=meeting.devices if meeting else None,
    )


def meeting_alone(program: OptunaProgram) -> Meeting | None:
    """Rendezvous if this process is the only rank; None without ranks."""
    if not has_shared_trials(program.path):
        return None
    from tuner.frameworks.optuna_programs.meeting import Meeting  # torch takes seconds

    return Meeting(0, 1, is_alone=True)


def active(meeting: Meeting | None) -> AbstractContextManager[None]:
    """Lets the ranks of a program meet inside of the block."""
    return meeting.active() if meeting else nullcontext()


def main_module(program: OptunaProgram) -> ModuleType:
    """The `__main__` of a program; processes that it starts find it by its file."""
    module = ModuleType(_MAIN)
    attributes: Mapping[str, object] = {"__file__": str(program.path), "__builtins__": __builtins__}
    vars(module).update(attributes)
    return module


def run(program: OptunaProgram, module: ModuleType) -> None:
    """Runs a program in a module, which stays this process's `__main__`."""
    sys.modules[_MAIN] = module
    sys.argv[:] = [str(program.path), *program.arguments]
    folder = str(program.path.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    code = compile(program.path.read_bytes(), str(program.path), "exec")
    exec(code, vars(module))


@contextmanager
def in_folder(folder: Path) -> Iterator[None]:
    """Works in a folder inside of the block."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
