"""A study in memory, for Optuna's own figures of parameters.

These need an Optuna study. Reading one of ten thousand trials in the usual way reads a million
reports too; this one has only parameters and values, and a limited number of trials, with which the
figures are fast: the best and the newest. Importance (PED-ANOVA, Watanabe et al., IJCAI 2023) uses
a sample of all trials, as it compares the best tenth with the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import FrozenTrial, TrialState, create_trial

from tuner.app.data.columns import Numbers
from tuner.app.data.trials.columns import TrialColumns
from tuner.app.data.trials.table import Params
from tuner.queries.studies import Objective
from tuner.search_spaces import ParamValue
from tuner.store.optuna_compat import can_hold

#: A second of the server's time, at a quarter of a millisecond each.
MAX_FOR_IMPORTANCE = 2000
_BEST_SHARE = 0.3


def pick_rows(
    trials: TrialColumns,
    place: int,
    *,
    is_maximized: bool,
    most: int,
    with_pruned: bool = False,
) -> Numbers:
    """Rows of `TrialColumns.is_sample`: all, or the best and the newest, in order."""
    able = np.flatnonzero(trials.is_sample(with_pruned=with_pruned))
    if len(able) <= most:
        return able
    sign = -1.0 if is_maximized else 1.0
    order = np.argsort(sign * trials.shown_values[able, place], kind="stable")
    best = able[order[: int(_BEST_SHARE * most)]]
    others = np.setdiff1d(able, best)
    return np.sort(np.concatenate([best, others[len(best) - most :]]))


def spread_rows(trials: TrialColumns, most: int, *, with_pruned: bool = False) -> Numbers:
    """Rows of `TrialColumns.is_sample`: all, or some of all times."""
    able = np.flatnonzero(trials.is_sample(with_pruned=with_pruned))
    if len(able) <= most:
        return able
    return able[np.linspace(0, len(able) - 1, most).astype(np.int64)]


def study_of(
    trials: TrialColumns,
    rows: Numbers,
    objective: Objective,
    place: int,
    params: Params,
    distributions: Mapping[str, BaseDistribution],
) -> optuna.Study:
    """With one objective, and these trials under their own numbers."""
    logged = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction=objective.direction)
    optuna.logging.set_verbosity(logged)
    some = trials.where(rows)
    found = [
        _trial(params.get(trial_id, {}), value, distributions)
        for trial_id, value in zip(
            some.ids.tolist(), some.shown_values[:, place].tolist(), strict=True
        )
    ]
    study.add_trials(found)
    # Optuna numbers what is added from 0; its figures take the numbers from these objects.
    for trial, number in zip(study.get_trials(deepcopy=False), some.numbers.tolist(), strict=True):
        trial.number = number
    return study


def _trial(
    params: Mapping[str, ParamValue], value: float, distributions: Mapping[str, BaseDistribution]
) -> FrozenTrial:
    """A trial without constants, and without values that a later space refuses."""
    known = {
        name: each
        for name, each in params.items()
        if name in distributions and can_hold(distributions[name], each)
    }
    return create_trial(
        state=TrialState.COMPLETE,
        value=value,
        params=known,
        distributions={name: distributions[name] for name in known},
    )


def importances(study: optuna.Study) -> dict[str, float]:
    """By parameter, the most important first; empty if unknown.

    Only of parameters that every trial has: conditional ones are excluded.
    """
    names = shared_names(study)
    values = {trial.value for trial in study.get_trials(deepcopy=False)}
    if len(values) < 2 or not names:
        return {}
    try:
        return get_param_importances(study, evaluator=PedAnovaImportanceEvaluator(), params=names)
    except (ValueError, RuntimeError):
        return {}  # All values are the same, or too few of them differ.


def shared_names(study: optuna.Study) -> list[str]:
    """Parameters that every trial has and of which there are several values."""
    trials: Sequence[FrozenTrial] = study.get_trials(deepcopy=False)
    if not trials:
        return []
    names = [name for name in trials[0].params if all(name in each.params for each in trials)]
    return [name for name in names if len({repr(each.params[name]) for each in trials}) > 1]


def dropped_params(study: optuna.Study, names: Sequence[str]) -> dict[str, str]:
    """Parameters that are not in `shared_names`, each with the reason.

    Args:
        study: The trials that are shown.
        names: Parameters of the search space.
    """
    trials: Sequence[FrozenTrial] = study.get_trials(deepcopy=False)
    kept, dropped = set(shared_names(study)), {}
    for name in names:
        n_with = sum(name in each.params for each in trials)
        if name not in kept and trials:
            dropped[name] = _why_dropped(n_with, len(trials))
    return dropped


def _why_dropped(n_with: int, n: int) -> str:
    if n_with == n:
        return "all trials have the same value"
    return f"only {n_with} of the {n} trials have it" if n_with else "no trial has it"
