"""Runs a program in this process, as `python train.py` would."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from tuner.frameworks.optuna_programs.interception import Interception, OptimizeCall, Reached

_MAIN = "__main__"


@dataclass(frozen=True, slots=True, kw_only=True)
class OptunaProgram:
    """A file that calls `study.optimize`, and its arguments."""

    path: Path
    arguments: tuple[str, ...] = ()
    #: Where it is started.
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

    def set_up(self) -> None:
        """Makes this process look like one that was started with the program."""
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
    try:
        with interception.active(), in_folder(program.folder):
            run(program, module)
    except Reached:
        pass
    except BaseException:
        # What follows a `study.optimize` that was not done may fail.
        if interception.call is None:
            raise
    if interception.call is None:
        raise NotReached
    return Loaded(program=program, call=interception.call, interception=interception, module=module)


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
