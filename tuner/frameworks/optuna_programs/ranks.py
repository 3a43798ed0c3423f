"""One trial of a program whose ranks meet before `study.optimize` (`TorchDistributedTrial`).

Rank 0 of such a program has the study, and the other ranks call `objective(None)` in a loop. The
tuner starts the ranks of each trial, and each runs the program from its first line. In rank 0
`study.optimize` calls the objective once. The loop of another rank ends when it would wait for a
second trial.
"""

from __future__ import annotations

import os

import optuna

from tuner.frameworks.optuna_programs.evaluation import evaluate_call
from tuner.frameworks.optuna_programs.execution import (
    OptunaProgram,
    in_folder,
    main_module,
    run,
)
from tuner.frameworks.optuna_programs.interception import Interception, OptimizeCall, Reached
from tuner.frameworks.optuna_programs.meeting import Meeting
from tuner.frameworks.optuna_programs.variables import ENV_PROGRAM
from tuner.trials.context import TrialContext


def objective(trial: TrialContext) -> object:
    """Runs one rank of the program for one trial.

    Returns:
        What the objective returned, on rank 0.

    Raises:
        TrialPruned: If the objective raised it, on rank 0.
    """
    program = OptunaProgram.from_text(os.environ[ENV_PROGRAM])
    interception = _OneTrial(trial)
    meeting = Meeting(trial.rank, trial.world_size)
    try:
        with interception.active(), meeting.active(), in_folder(program.folder):
            run(program, main_module(program))
    except Reached:
        pass
    meeting.leave()
    if interception.pruned is not None:
        raise interception.pruned
    return interception.value


class _OneTrial(Interception):
    """`study.optimize` evaluates the trial of this process, and then ends the program."""

    def __init__(self, trial: TrialContext) -> None:
        super().__init__()
        self.value: object = None
        self.pruned: optuna.TrialPruned | None = None
        self._trial = trial

    def reached(self, call: OptimizeCall) -> None:
        try:
            self.value = evaluate_call(call, self, self._trial)
        except optuna.TrialPruned as pruned:
            self.pruned = pruned
