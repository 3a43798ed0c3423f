"""Several objectives: one curve model each, and the predicted front.

Up to four objectives the hypervolume is used: it rates a whole front by one number, without
weights, and suggestions fill the gaps of the front.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from tuner.search.samplers.curve_gp.acquisition import Acquisition, RowOf, Scales, at_the_end
from tuner.search.samplers.curve_gp.feasibility import is_able
from tuner.search.samplers.curve_gp.hypervolume import (
    expected_hypervolume_improvement,
    front_of,
    reference_point,
)
from tuner.search.samplers.curve_gp.points import Observed, inputs, observed, thinned
from tuner.search.samplers.curve_gp.regression import Regression, standardized
from tuner.search.samplers.curve_gp.scalarization import Weighting
from tuner.search.samplers.curve_gp.set_aside import set_aside
from tuner.search.trial_attributes.vector_curve import of_one_objective

if TYPE_CHECKING:
    from tuner.search.samplers.curve_gp.gaussian_process import GaussianProcess, Posterior

Array = NDArray[np.float64]

#: With more objectives, the non-dominated region splits into too many boxes.
_MOST_FOR_HYPERVOLUME = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Objective:
    """One objective of all trials, in scores with mean 0 and variance 1."""

    process: GaussianProcess
    #: [n, c + 1], known or predicted final points.
    x: Array
    #: [n].
    y: Array
    posterior: Posterior
    #: By trial number: the last score that was reported.
    last: Mapping[int, float]

    def believing(self, rows: Array) -> _Objective:
        """As if [m, c] configurations had ended as predicted."""
        ends = at_the_end(rows)
        believed, _ = self.posterior.predict(ends)
        x, y = np.vstack([self.x, ends]), np.append(self.y, believed)
        return replace(self, x=x, y=y, posterior=self.process.given(x, y))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outlook:
    """Known and predicted final values of trials."""

    #: [k, m], losses.
    front: Array
    #: [m], worse than the front in each objective.
    reference: Array
    #: The trials on the front.
    leaders: Sequence[FrozenTrial]


class SeveralObjectives:
    """The processes of one study, one per objective.

    Args:
        limit: Maximum number of points per process.
        scalarizes: Weights objectives at random instead of using the hypervolume, as always beyond
            four objectives.
    """

    def __init__(self, limit: int, *, scalarizes: bool) -> None:
        self._limit = limit
        self._scalarizes = scalarizes
        self._models: list[Regression] = []

    def learn(
        self,
        trials: Sequence[FrozenTrial],
        directions: Sequence[StudyDirection],
        row_of: RowOf,
        scales: Scales,
        rng: np.random.Generator,
    ) -> Acquisition | None:
        """Fits the processes.

        Args:
            trials: The study's trials, with their reports.
            directions: Directions of the objectives.
            row_of: Encodes a trial.
            scales: Length scales of configurations and steps.
            rng: Draws weights.

        Returns:
            None if no trial that keeps all constraints has reported anything.
        """
        while len(self._models) < len(directions):
            self._models.append(Regression())
        objectives = []
        for place, direction in enumerate(directions):
            one = self._learn_one(trials, place, direction, row_of, scales)
            if one is None:
                return None
            objectives.append(one)
        begun = [each for each in trials if each.state is TrialState.RUNNING]
        if begun:
            rows = np.stack([row_of(each) for each in begun])
            objectives = [each.believing(rows) for each in objectives]
        able = [each for each in trials if is_able(each)]
        outlook = _outlook(able, objectives, row_of)
        if outlook is None:
            return None
        is_weighted = self._scalarizes or len(directions) > _MOST_FOR_HYPERVOLUME
        weighting = Weighting(outlook.front, outlook.reference, rng) if is_weighted else None
        aside = set_aside(able, row_of, lambda rows: _gains(rows, objectives, outlook, weighting))
        known = objectives if aside is None else [each.believing(aside) for each in objectives]
        return Acquisition(
            gains=lambda rows: _gains(rows, known, outlook, weighting),
            leaders=outlook.leaders,
        )

    def _learn_one(
        self,
        trials: Sequence[FrozenTrial],
        place: int,
        direction: StudyDirection,
        row_of: RowOf,
        scales: Scales,
    ) -> _Objective | None:
        ones = [of_one_objective(each, place) for each in trials]
        is_maximized = direction is StudyDirection.MAXIMIZE
        curves = [(each, thinned(each)) for each in ones]
        points, steps = observed(curves, is_maximized=is_maximized, limit=self._limit)
        if not points:
            return None
        x = inputs(points, steps, row_of)
        y = standardized(np.array([each.score for each in points]))
        n_trials = max(each.number for each in trials) + 1
        model = self._models[place].fit(x, y, scales, n_trials=n_trials)
        return _Objective(
            process=model, x=x, y=y, posterior=model.given(x, y), last=_last(points, y)
        )


def _last(points: Sequence[Observed], scores: Array) -> dict[int, float]:
    """The last score of each trial; points are sorted by step."""
    return {each.trial.number: float(score) for each, score in zip(points, scores, strict=True)}


def _outlook(
    able: Sequence[FrozenTrial], objectives: Sequence[_Objective], row_of: RowOf
) -> _Outlook | None:
    seen = [each for each in able if all(each.number in one.last for one in objectives)]
    if not seen:
        return None
    numbers = {each.number for each in seen}
    begun = [e for e in able if e.state is TrialState.RUNNING and e.number not in numbers]
    ahead = [*seen, *begun]
    reached = np.array([[one.last[each.number] for one in objectives] for each in seen])
    ends, _ = _predicted(np.stack([row_of(each) for each in ahead]), objectives)
    losses = np.vstack([ends, -reached])
    front = front_of(losses)
    on_front = {tuple(each) for each in front.tolist()}
    owners = zip([*ahead, *seen], losses.tolist(), strict=True)
    leaders = {each.number: each for each, vector in owners if tuple(vector) in on_front}
    return _Outlook(
        front=front, reference=reference_point(front, losses), leaders=[*leaders.values()]
    )


def _gains(
    rows: Array,
    objectives: Sequence[_Objective],
    outlook: _Outlook,
    weighting: Weighting | None,
) -> Array:
    mean, deviation = _predicted(rows, objectives)
    if weighting is not None:
        return weighting.expected_improvement(mean, deviation)
    return expected_hypervolume_improvement(
        mean, deviation, front=outlook.front, reference=outlook.reference
    )


def _predicted(rows: Array, objectives: Sequence[_Objective]) -> tuple[Array, Array]:
    """[m, n_objectives] means and deviations of the losses with which [m, c] configurations end."""
    predicted = [one.posterior.predict(at_the_end(rows)) for one in objectives]
    means = -np.stack([mean for mean, _ in predicted], axis=1)
    return means, np.stack([deviation for _, deviation in predicted], axis=1)
