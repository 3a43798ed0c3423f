"""Curves of several objectives, stored in a trial attribute: Optuna's tables hold none.

Samplers learn from them, in this start and later ones. All reports are in `tuner_metrics`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from optuna.trial import FrozenTrial, TrialState

if TYPE_CHECKING:
    # It imports SQLAlchemy, which the process that suggests parameters does without.
    from tuner.store.optuna_tables.storage import BufferedStorage


CURVE_KEY = "tuner:curve"
"""Attribute of a trial: some of its reports, as pairs of a step and all objectives' values."""
LAST_STEP_KEY = "tuner:last_step"
"""Attribute of a completed trial of several objectives: the step of its last report."""

#: Larger values count as infinite.
LARGEST = 1e100
#: From one report that is kept to the next the step grows by so much.
_GROWTH = 1.5


def is_next(step: int, last: int) -> bool:
    """Whether a step is far enough beyond the last stored one to be stored."""
    return step >= max(last + 1, _GROWTH * last)


class VectorCurves:
    """Stores some of the reports of each trial.

    Args:
        storage: Holds the study.
    """

    def __init__(self, storage: BufferedStorage) -> None:
        self._storage = storage

    def note(self, trial_id: int, step: int, values: Sequence[float]) -> None:
        """Records a report; repeated steps replace earlier reports."""
        noted = curve_of(self._storage.get_trial(trial_id))
        curve = {each: at for each, at in noted.items() if each < step}
        is_new = len(curve) < len(noted) or not curve or is_next(step, max(curve))
        if not is_new and all(map(math.isfinite, values)):
            return
        curve[step] = values
        self._storage.set_trial_system_attr(
            trial_id, CURVE_KEY, [[each, list(at)] for each, at in curve.items()]
        )


def curve_of(trial: FrozenTrial) -> dict[int, Sequence[float]]:
    """The reports of a trial that are kept, by step."""
    return {int(step): values for step, values in trial.system_attrs.get(CURVE_KEY, ())}


def has_diverged(trial: FrozenTrial) -> bool:
    """Whether the last report of a trial has a value that is NaN or practically infinite."""
    curve = trial.intermediate_values
    last: Sequence[float] = [curve[max(curve)]] if curve else ()
    if vectors := curve_of(trial):
        last = vectors[max(vectors)]
    return not all(abs(value) < LARGEST for value in last)


def of_one_objective(trial: FrozenTrial, place: int) -> FrozenTrial:
    """A trial of several objectives, reduced to one of them.

    Args:
        trial: The trial, which is not changed.
        place: Index of the objective.
    """
    curve = curve_of(trial)
    values: Mapping[int, Sequence[float]] = curve
    if trial.state is TrialState.COMPLETE and curve:
        last = max(max(curve), trial.system_attrs.get(LAST_STEP_KEY, 0))
        values = {**curve, last: trial.values}
    one = copy.copy(trial)
    one.intermediate_values = {step: at[place] for step, at in values.items()}
    one.values = [trial.values[place]] if trial.values else None
    return one
