"""The function of a trial of such a program. Its import runs the program up to `optimize`.

The fork server imports it once, so that each trial starts with the program's preparations.
"""

from __future__ import annotations

import os

from tuner.frameworks.optuna_programs.evaluation import evaluate_call
from tuner.frameworks.optuna_programs.execution import OptunaProgram, load
from tuner.frameworks.optuna_programs.variables import ENV_PROGRAM
from tuner.trials.context import TrialContext

_loaded = load(OptunaProgram.from_text(os.environ[ENV_PROGRAM]))


def objective(trial: TrialContext) -> object:
    """Calls the objective of the program, and then the `constraints_func` of its sampler."""
    _loaded.set_up()
    return evaluate_call(_loaded.call, _loaded.interception, trial)
