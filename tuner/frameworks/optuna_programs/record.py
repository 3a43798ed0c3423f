"""Runs a program up to `study.optimize` in a process of its own, and records its settings.

python -m tuner.frameworks.optuna_programs.record FILE_DESCRIPTOR train.py [ARGUMENTS]
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tuner.frameworks.optuna_programs.execution import NotReached, OptunaProgram, load
from tuner.frameworks.optuna_programs.interception import AskedAndTold
from tuner.frameworks.optuna_programs.translation import problem_of, translate
from tuner.launch.failure_diagnosis import user_traceback


def main(words: Sequence[str]) -> int:
    """Writes `[problem, translation]` as a line of JSON; one of them is empty."""
    fd, path, *arguments = words
    program = OptunaProgram(path=Path(path), arguments=tuple(arguments), folder=Path.cwd())
    problem, text = _record(program)
    sys.stdout.flush()
    with os.fdopen(int(fd), "w", encoding="utf-8") as pipe:
        print(json.dumps([problem, text]), file=pipe)
    # Those of the program, such as a manager's, would stay behind.
    for child in multiprocessing.active_children():
        child.terminate()
    return 0


def _record(program: OptunaProgram) -> tuple[str, str]:
    try:
        loaded = load(program)
    except NotReached:
        return _NEVER, ""
    except AskedAndTold:
        return _ASKS, ""
    except SystemExit as error:
        return f"ended with exit code {error.code!r} before it called study.optimize.", ""
    except KeyboardInterrupt:
        return "was interrupted before it called study.optimize.", ""
    except BaseException as error:  # the edge: any program may fail in any way
        return f"failed before it called study.optimize:\n{user_traceback(error)}", ""
    if problem := problem_of(loaded):
        return problem, ""
    return "", translate(loaded).to_text()


_NEVER = (
    "does not call study.optimize(...). Write a study file instead, with the program as a command: "
    "tuner init --from {file}"
)
_ASKS = (
    "asks for trials by itself (study.ask). Put the training into a function objective(trial) that "
    "returns the value, and call study.optimize(objective, n_trials=...)."
)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of the program's libraries are not waited for.
    os._exit(code)
