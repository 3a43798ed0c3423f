"""The best completed trial of a study so far, which the field calls its incumbent."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import optuna
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from tuner.domain.pareto_front import ParetoFront
from tuner.search_spaces import ParamValue
from tuner.store.optuna_compat import trial_id_of


@dataclass(frozen=True, slots=True, kw_only=True)
class BestTrial:
    """A best completed trial."""

    number: int
    values: Mapping[str, float]
    params: Mapping[str, ParamValue]


class Incumbent:
    """Keeps the best trial; with several objectives the newest on the Pareto front.

    Args:
        study: The study; its completed trials are read once, here.
        objectives: Their names, in order.
        params_of: All parameters of a trial, by its id.
    """

    def __init__(
        self,
        study: optuna.Study,
        objectives: Sequence[str],
        params_of: Callable[[int], Mapping[str, ParamValue]],
    ) -> None:
        self._study = study
        self._objectives = tuple(objectives)
        self._params_of = params_of
        self._front = ParetoFront(study.directions)
        self._on_front: list[BestTrial] = []
        #: None while no trial has completed with a finite value that breaks no constraint.
        self.best: BestTrial | None = None
        for trial in self._known_best():
            self.consider(trial)

    def consider(self, trial: FrozenTrial) -> None:
        """Updates the best trial with a completed trial."""
        if self._is_best(trial):
            self.best = BestTrial(
                number=trial.number,
                values=dict(zip(self._objectives, trial.values or [], strict=True)),
                params=self._params_of(trial_id_of(trial)),
            )
            if len(self._objectives) > 1:
                self._on_front.append(self.best)

    def front(self) -> tuple[BestTrial, ...]:
        """The Pareto front, with several objectives; by trial number."""
        known = {each.number: each for each in self._on_front}
        self._on_front = [
            each for _, each in sorted(known.items()) if self._front.has(each.values.values())
        ]
        return tuple(self._on_front)

    def _known_best(self) -> list[FrozenTrial]:
        if len(self._objectives) > 1:
            return self._study.best_trials
        try:
            best = self._study.best_trial
        except ValueError:
            return []  # No trial has completed, or none is feasible.
        if _is_finite(best):
            return [best]
        # To Optuna an infinite value may be the best one.
        return self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))

    def _is_best(self, trial: FrozenTrial) -> bool:
        if any(value > 0 for value in trial.constraints.values()) or not _is_finite(trial):
            return False
        if len(self._objectives) > 1:
            return self._front.add(trial.values or [])
        if self.best is None or trial.value is None:
            return True
        best = self.best.values[self._objectives[0]]
        if trial.value == best:
            # The same rule as Optuna's, and as later readers'.
            return trial.number < self.best.number
        is_maximized = self._study.direction is StudyDirection.MAXIMIZE
        return trial.value > best if is_maximized else trial.value < best


def _is_finite(trial: FrozenTrial) -> bool:
    return all(map(math.isfinite, trial.values or []))
