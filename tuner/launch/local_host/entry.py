"""Entry point of a forked process: finds the worker's program by name and calls it.

By name, because the code inside a training process (`trials`) is in a higher layer.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from tuner.launch.failure_diagnosis import import_traceback, user_traceback
from tuner.launch.function_check import function_problem, missing_function
from tuner.launch.hints import import_hint
from tuner.launch.local_host import announced_stop, lifeline, preload
from tuner.launch.request import CommandProgram, LaunchRequest, Program

FUNCTION_WORKER = "tuner.trials.worker.function_worker"
COMMAND_WORKER = "tuner.trials.worker.command_worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramCheck:
    """Result of importing the user's modules in a forked process."""

    #: Why the program cannot be used; empty if it can.
    problem: str = ""
    #: Importing it ahead of the fork has initialised CUDA or started a runtime's threads.
    is_unsafe_to_preload: bool = False
    #: Libraries that it imports, to be imported ahead of the fork all the same.
    libraries: tuple[str, ...] = ()
    #: Notes on the modules; the program works.
    remarks: tuple[str, ...] = ()


def wait(requests: Connection, lifeline_path: Path) -> None:
    """Waits for the one request of this process, as the head of its own session; never returns.

    The dispatcher forks ahead, so that a freed device does not wait for a fork.
    """
    os.setsid()
    lifeline.hold(lifeline_path)
    _look_where_the_server_looks()
    try:
        request = requests.recv()
    except EOFError:
        os._exit(0)  # The dispatcher ended without a trial for this process.
    # A SIGTERM from before was none of the trial's.
    announced_stop.take_early_signal()
    requests.close()
    enter(request)


def enter(request: LaunchRequest) -> None:
    """Runs one worker; does not return."""
    is_command = isinstance(request.program, CommandProgram)
    module = importlib.import_module(COMMAND_WORKER if is_command else FUNCTION_WORKER)
    module.main(request)


def check(
    program: Program, parameters: Sequence[str], answer: Connection, lifeline_path: Path
) -> None:
    """Checks whether the program's functions can be imported and called with a trial.

    Args:
        program: The program of the trials.
        parameters: Names of the search space, for the messages.
        answer: Receives a `ProgramCheck`.
        lifeline_path: The file that the dispatcher holds open while it lives.
    """
    lifeline.hold(lifeline_path, is_alone=True)
    _look_where_the_server_looks()
    problems = (_problem(key, name, parameters) for key, name in _functions(program))
    problem = next(filter(None, problems), "")
    has_cuda = _has_initialised_cuda()
    found = ProgramCheck(
        problem=problem,
        # Both start threads when they are imported or first used; a fork loses them.
        is_unsafe_to_preload=has_cuda or "jax" in sys.modules or "tensorflow" in sys.modules,
        libraries=tuple(name for name in ("torch", "torch._dynamo") if name in sys.modules),
        remarks=(*preload.remarks, *([_cuda_remark(program)] if has_cuda else [])),
    )
    answer.send(found)
    answer.close()


def _look_where_the_server_looks() -> None:
    """multiprocessing has set the dispatcher's own path, which lacks the user's folders."""
    sys.path[:] = preload.import_path or sys.path


def _functions(program: Program) -> list[tuple[str, str]]:
    """Study-file key and `module:function` of each function that the program names."""
    named = [("search_space", program.space)] if program.space else []
    if isinstance(program, CommandProgram):
        return named
    return [("trial.function", f"{program.module}:{program.function}"), *named]


def _problem(key: str, name: str, parameters: Sequence[str]) -> str:
    module, _, path = name.partition(":")
    try:
        found: object = importlib.import_module(module)
    except (Exception, SystemExit) as error:  # the edge: any module may fail in any way
        if isinstance(error, ModuleNotFoundError) and error.name == module:
            folders = " or ".join(dict.fromkeys(preload.import_path[:2])) or "the present folder"
            return (
                f"{key} is {name!r}, but there is no module {module!r} in {folders}, and none is "
                "installed. Correct the name, or put the file there."
            )
        return f"{key} is {name!r}, but importing {module!r} fails:\n{_import_error(error)}"
    for part in path.split("."):
        found = getattr(found, part, None)
    if found is None:
        return f"{key} is {name!r}, but {module} {missing_function(path, sys.modules[module])}"
    problem = function_problem(found, path, parameters)
    return f"{key} is {name!r}, {problem}" if problem else ""


def _import_error(error: BaseException) -> str:
    text = import_traceback if isinstance(error, SystemExit) else user_traceback
    told = text(error).removeprefix("Traceback (most recent call last):\n")
    return "\n".join(
        f"    {line}" for line in [*told.splitlines(), *import_hint(error).splitlines()]
    )


def _has_initialised_cuda() -> bool:
    torch = sys.modules.get("torch")
    in_bad_fork = torch is not None and getattr(torch.cuda, "_is_in_bad_fork", lambda: False)()
    return preload.has_initialised_cuda or in_bad_fork


def _cuda_remark(program: Program) -> str:
    key, name = _functions(program)[0]
    return (
        f"{key}: importing {name.partition(':')[0]} initialises CUDA (or a library that it imports "
        "does), and a forked process cannot use that, so every trial imports it again. If it is "
        "your own line, such as torch.cuda.get_device_name(), move it into the function: trials "
        "then start faster."
    )
