"""Why a pruner gave a trial up, in numbers: the step, the value, and what it was compared with."""

from __future__ import annotations

import math
from collections.abc import Sequence

import optuna
from optuna.pruners import BasePruner, SuccessiveHalvingPruner
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial

from tuner.search.pruners.percentile import RankedPruner


def why_pruned(study: optuna.Study, pruner: BasePruner, trial: FrozenTrial, name: str) -> str:
    """
    Args:
        study: The trial's.
        pruner: Who has just given it up.
        trial: With its last report.
        name: Of the objective.

    Returns:
        A sentence without the full stop.
    """
    step = max(trial.intermediate_values)
    value = trial.intermediate_values[step]
    kind = type(pruner.pruner if isinstance(pruner, RankedPruner) else pruner).__name__
    told = f"{kind.removesuffix('Pruner')} pruned it at step {step} ({name} {value:.6g})"
    if math.isnan(value):
        return told
    if isinstance(pruner, RankedPruner):
        return f"{told}: {_beside_completed(study, pruner, trial, name)}"
    if isinstance(pruner, SuccessiveHalvingPruner):
        others = study.get_trials(deepcopy=False)
        return f"{told}{_at_rung(others, study.direction, pruner, trial, name)}"
    return told


def _beside_completed(
    study: optuna.Study, pruner: RankedPruner, trial: FrozenTrial, name: str
) -> str:
    is_maximized = study.direction is StudyDirection.MAXIMIZE
    best = (max if is_maximized else min)(trial.intermediate_values.values())
    bar, n_compared = pruner.bar_at(study, max(trial.intermediate_values))
    worse = "below" if is_maximized else "above"
    return (
        f"its best {name} so far, {best:.6g}, is {worse} {bar:.6g}, the "
        f"{pruner.percentile_name} of {n_compared} completed trials at that step"
    )


def _at_rung(
    others: Sequence[FrozenTrial],
    direction: StudyDirection,
    pruner: SuccessiveHalvingPruner,
    trial: FrozenTrial,
    name: str,
) -> str:
    rung = 0
    while f"completed_rung_{rung + 1}" in trial.system_attrs:
        rung += 1
    key = f"completed_rung_{rung}"
    reached = [other.system_attrs[key] for other in others if key in other.system_attrs]
    if key not in trial.system_attrs or len(reached) <= pruner._bootstrap_count:
        return ""
    in_order = sorted(reached, reverse=direction is StudyDirection.MAXIMIZE)
    bar = in_order[max(0, len(in_order) // pruner._reduction_factor - 1)]
    least = "at least" if direction is StudyDirection.MAXIMIZE else "at most"
    return (
        f": rung {rung} is passed with {name} {least} {bar:.6g}, by the best 1 in "
        f"{pruner._reduction_factor} of the {len(reached)} trials that have come to it"
    )
