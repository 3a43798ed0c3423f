"""Evaluates one configuration of a program that calls `study.optimize`, without the tuner."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.frameworks.optuna_programs.execution import OptunaProgram, load
from tuner.frameworks.optuna_programs.variables import ENV_ARGUMENTS
from tuner.trials.current_trial import current


def evaluate(path: str, params: Mapping[str, Any]) -> object:
    """Calls the objective of a program with these parameters.

    Args:
        path: The program. Its arguments are in the variable `PROGRAM_ARGUMENTS`.
        params: All parameters that the objective suggests, by name.

    Returns:
        What the objective returns.
    """
    arguments = tuple(shlex.split(os.environ.get(ENV_ARGUMENTS, "")))
    program = OptunaProgram(path=Path(path).resolve(), arguments=arguments, folder=Path.cwd())
    loaded = load(program)
    loaded.set_up()
    return loaded.call.objective(current(params))
