"""The words before a script in a typed command: variables, an interpreter, a launcher."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tuner.config.proposals.proposal import literal

_INTERPRETER = re.compile(r"(.*/)?(pythonw?|pypy)[\d.]*")
_VARIABLE = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
#: They start the words that follow them, and stay in the command.
_WRAPPERS = ("uv", "poetry", "pipenv", "pdm", "hatch", "rye", "conda", "nice", "numactl", "taskset")
#: They are of no use in a trial.
_LEFT_OUT = ("nohup", "time")
_MPI = ("mpirun", "mpiexec")
_TORCH_MODULES = ("torch.distributed.run", "torch.distributed.launch")
_RANKS = ("--nproc_per_node", "--nproc-per-node", "--num_processes", "--num-processes")
_MPI_RANKS = ("-n", "-np", "--np", "-c")
_PRECISION = ("--mixed_precision", "--mixed-precision")
_DEVICES = "CUDA_VISIBLE_DEVICES"


@dataclass(slots=True, kw_only=True)
class Start:
    """How a typed command starts its program."""

    #: The words of the command before the program's own.
    words: list[str] = field(default_factory=list)
    #: A file of Python; None if the command starts none.
    script: Path | None = None
    arguments: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    #: Ranks that the command starts; 0 for a program of one process.
    n_ranks: int = 0
    #: Whether the tuner starts the ranks, in place of a launcher.
    is_ddp: bool = False
    notes: list[str] = field(default_factory=list)


def read_start(words: Sequence[str]) -> Start:
    """Reads a command up to its script."""
    start, rest = Start(), list(words)
    while rest and _take_prefix(start, rest):
        pass
    place = next((at for at, word in enumerate(rest) if _is_program(rest, at)), None)
    if place is None:
        return start
    before = rest[:place]
    if not all(map(_is_flag_of_python, before[1:])) or not all(
        map(_INTERPRETER.fullmatch, before[:1])
    ):
        return start
    start.arguments = tuple(rest[place + 1 :])
    if rest[place].endswith(".py"):
        start.script = Path(rest[place])
        start.words += [literal(word) for word in before] or ([] if start.words else ["python"])
    else:
        start.script = _file_of_module(rest[place])
        start.words += [literal(word) for word in [*before, rest[place]]]
    return start


def _is_program(words: Sequence[str], at: int) -> bool:
    return words[at].endswith(".py") or (at > 0 and words[at - 1] == "-m")


def _is_flag_of_python(word: str) -> bool:
    return re.fullmatch(r"-[bBdEiIOPqsSuvx]+|-m|-[WX].+", word) is not None


def _file_of_module(name: str) -> Path:
    path = Path(*name.split("."))
    return path / "__main__.py" if path.is_dir() else path.with_name(f"{path.name}.py")


def _take_prefix(start: Start, rest: list[str]) -> bool:
    """Takes the first words if they start the others; whether it did."""
    first = rest[0].rpartition("/")[2]
    if found := _VARIABLE.fullmatch(rest[0]):
        _take_variable(start, *found.groups())
        del rest[0]
    elif first == "env" or first in _LEFT_OUT:
        del rest[0]
    elif first == "torchrun":
        del rest[0]
        _take_launcher(start, rest, first)
    elif (
        _INTERPRETER.fullmatch(rest[0])
        and rest[1:2] == ["-m"]
        and rest[2:3]
        and (rest[2] in _TORCH_MODULES)
    ):
        name = f"-m {rest[2]}"
        del rest[:3]
        _take_launcher(start, rest, name)
    elif rest[:2] == ["accelerate", "launch"]:
        del rest[:2]
        _take_launcher(start, rest, "accelerate launch")
    elif first in _MPI:
        _take_mpi(start, rest)
    elif first in _WRAPPERS:
        end = _begin_of_program(rest)
        start.words += [literal(word) for word in rest[:end]]
        del rest[:end]
    else:
        return False
    return True


def _begin_of_program(words: Sequence[str]) -> int:
    """The place of the interpreter or the script; the end if there is none."""
    for at, word in enumerate(words):
        if at and (_INTERPRETER.fullmatch(word) or word.endswith(".py")):
            return at
    return len(words)


def _take_variable(start: Start, name: str, value: str) -> None:
    if name == _DEVICES:
        start.notes.append(f"Left out: {name}={value}. The tuner gives each trial its devices.")
    else:
        start.env[name] = literal(value)


def _take_launcher(start: Start, rest: list[str], name: str) -> None:
    """A launcher of torch's ranks: `parallel: ddp` takes its place."""
    end = _begin_of_program(["", *rest]) - 1
    options = _options(rest[:end])
    del rest[:end]
    n_ranks = next((options[key] for key in _RANKS if key in options), "")
    start.n_ranks = int(n_ranks) if n_ranks.isdecimal() else 0
    is_accelerate = name.startswith("accelerate")
    start.is_ddp = start.n_ranks > 1 or not is_accelerate or "--multi_gpu" in options
    if precision := next((options[key] for key in _PRECISION if key in options), ""):
        start.env["ACCELERATE_MIXED_PRECISION"] = precision
    if start.is_ddp:
        advice = "parallel: ddp starts one rank per device, resources.gpus is their number"
    else:
        advice = "a trial is one process; for more see resources.gpus and parallel: ddp"
    given = [key for key in options if key not in (*_RANKS, *_PRECISION)]
    lost = f" ({', '.join(given)})" if given else ""
    start.notes.append(f"Left out: {name}{lost}: {advice}.")


def _take_mpi(start: Start, rest: list[str]) -> None:
    """The ranks of MPI are the devices of the trial."""
    end = _begin_of_program(rest)
    words = rest[:end]
    del rest[:end]
    for at, word in enumerate(words[:-1]):
        if word in _MPI_RANKS and words[at + 1].isdecimal():
            start.n_ranks, words[at + 1] = int(words[at + 1]), "{gpus}"
    start.words += [word if word == "{gpus}" else literal(word) for word in words]


def _options(words: Sequence[str]) -> dict[str, str]:
    """Options with their values, which are empty for switches."""
    found: dict[str, str] = {}
    name = ""
    for word in words:
        if word.startswith("-"):
            name, _, value = word.partition("=")
            found[name] = value
        elif name:
            found[name] = word
            name = ""
    return found
