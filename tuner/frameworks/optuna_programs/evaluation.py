"""Calls the objective of a program, and then the `constraints_func` of its sampler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState, create_trial

from tuner.frameworks.optuna_programs.interception import Interception, OptimizeCall
from tuner.store.optuna_compat import renumber, trial_id_of
from tuner.trials.context import TrialContext


def evaluate_call(call: OptimizeCall, interception: Interception, trial: TrialContext) -> object:
    """Calls the objective that was passed to `study.optimize`.

    Args:
        call: The call of `study.optimize`.
        interception: Has recorded the sampler's arguments.
        trial: The trial, passed to the objective.

    Returns:
        What the objective returns.
    """
    arguments = interception.arguments_of(call.study.sampler) or {}
    constraints: Constraints | None = arguments.get("constraints_func")
    try:
        value = call.objective(trial)
    except optuna.TrialPruned:
        _set_constraints(trial, constraints, TrialState.PRUNED, None)
        raise
    if value is not None:
        _set_constraints(trial, constraints, TrialState.COMPLETE, value)
    return value


Constraints = Callable[[FrozenTrial], Sequence[float]]


def _set_constraints(
    trial: TrialContext, constraints: Constraints | None, state: TrialState, value: Any
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
