"""Explains a pruning decision in numbers: the step, the value and the comparison."""

from __future__ import annotations

import math
from collections.abc import Sequence

import optuna
from optuna.pruners import BasePruner, SuccessiveHalvingPruner
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial

from tuner.search.pruners.percentile import RankedPruner
from tuner.search.rungs.table import RUNG_KEY, RungTable
from tuner.store.optuna_compat import halving_settings


def why_pruned(study: optuna.Study, pruner: BasePruner, trial: FrozenTrial, name: str) -> str:
    """Explains why a pruner pruned a trial.

    Args:
        study: The trial's study.
        pruner: The pruner.
        trial: With its last report.
        name: The objective's name.

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
    settings = halving_settings(pruner)
    rung = sum(key.startswith(RUNG_KEY) for key in trial.system_attrs) - 1
    if rung < 0:
        return ""
    key = f"{RUNG_KEY}{rung}"
    sign = -1.0 if direction is StudyDirection.MAXIMIZE else 1.0
    table = RungTable(first=1, factor=settings.reduction_factor)
    table.is_final, table.n_bootstrap = True, settings.bootstrap_count
    for each in (trial, *others):
        if key in each.system_attrs:
            table.come(each.number, 0, sign * each.system_attrs[key])
    standing = table.standing(trial.number, 0)
    if math.isnan(standing.bar):
        return ""
    least = "at least" if direction is StudyDirection.MAXIMIZE else "at most"
    return (
        f": rung {rung} is passed with {name} {least} {sign * standing.bar:.6g}, by the best 1 in "
        f"{settings.reduction_factor} of the {standing.n_came} trials that have come to it"
    )
