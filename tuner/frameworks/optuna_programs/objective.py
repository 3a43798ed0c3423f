"""What a trial of such a program calls. Importing this module runs the program up to `optimize`.

The fork server imports it once, so that each trial starts with what the program has prepared.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState, create_trial

from tuner.frameworks.optuna_programs.execution import OptunaProgram, load
from tuner.frameworks.optuna_programs.variables import ENV_PROGRAM
from tuner.store.optuna_compat import renumber, trial_id_of
from tuner.trials.context import TrialContext

CONSTRAINTS_ARGUMENT = "constraints_func"

_loaded = load(OptunaProgram.from_text(os.environ[ENV_PROGRAM]))


def objective(trial: TrialContext) -> object:
    """Calls the objective of the program, and then the `constraints_func` of its sampler."""
    _loaded.set_up()
    constraints = _constraints_func()
    try:
        value = _loaded.call.objective(trial)
    except optuna.TrialPruned:
        _set_constraints(trial, constraints, TrialState.PRUNED, None)
        raise
    if value is not None:
        _set_constraints(trial, constraints, TrialState.COMPLETE, value)
    return value


def _constraints_func() -> Callable[[FrozenTrial], Sequence[float]] | None:
    sampler = _loaded.call.study.sampler
    arguments = _loaded.interception.arguments_of(sampler) or {}
    found: Callable[[FrozenTrial], Sequence[float]] | None = arguments.get(CONSTRAINTS_ARGUMENT)
    return found


def _set_constraints(
    trial: TrialContext,
    constraints: Callable[[FrozenTrial], Sequence[float]] | None,
    state: TrialState,
    value: Any,
) -> None:
    if constraints is None:
        return
    values = None if value is None else [float(each) for each in _several(value)]
    frozen = create_trial(
        state=state,
        values=values,
        params=dict(trial.params),
        distributions=trial.distributions,
        user_attrs=trial.user_attrs,
    )
    renumber(frozen, trial.number, trial_id_of(frozen))
    for place, violation in enumerate(constraints(frozen)):
        trial.set_constraint(str(place), float(violation))


def _several(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [value]
