"""Runs the rest of a program after `study.optimize`, with the study that the tuner has run.

python -m tuner.frameworks.optuna_programs.finish PLACE STUDY train.py [ARGUMENTS], with the URL of
the database in the environment.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from tuner.frameworks.optuna_programs.execution import (
    OptunaProgram,
    active,
    main_module,
    meeting_alone,
    run,
)
from tuner.frameworks.optuna_programs.interception import FinishedStudy, Reached, finishing
from tuner.launch.request import ENV_STORAGE
from tuner.store.connection.optuna_storage import open_storage


def main(words: Sequence[str]) -> None:
    """Runs the program; its errors are this process's errors."""
    place, name, path, *arguments = words
    study = FinishedStudy(name, open_storage(os.environ.pop(ENV_STORAGE)))
    program = OptunaProgram(path=Path(path), arguments=tuple(arguments), folder=Path.cwd())
    try:
        with finishing(study, int(place)), active(meeting_alone(program)):
            run(program, main_module(program))
    except Reached as reached:
        line = _line_of(program, reached)
        print(f"The rest of the program, from the study.optimize in line {line} on, is not run.")


def _line_of(program: OptunaProgram, reached: Reached) -> int:
    """The program's own line that called `optimize`, also through a library."""
    frames = traceback.extract_tb(reached.__traceback__)
    return [each.lineno or 0 for each in frames if each.filename == str(program.path)][-1]


if __name__ == "__main__":
    main(sys.argv[1:])
