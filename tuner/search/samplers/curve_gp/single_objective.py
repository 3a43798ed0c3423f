"""One objective: its curve model and the value to improve on.

A trial that was pruned or paused counts as if it had ended as predicted, like a running one.
Otherwise a search may stand still: a configuration with a promising but uncertain end is suggested,
pruned because of its first reports, which say little about its end, and so stays the most promising
one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from tuner.search.samplers.curve_gp.acquisition import Acquisition, RowOf, Scales, at_the_end
from tuner.search.samplers.curve_gp.feasibility import is_infeasible, works
from tuner.search.samplers.curve_gp.points import N_LEADERS, Observed, inputs, observed
from tuner.search.samplers.curve_gp.regression import Regression, normalized

if TYPE_CHECKING:
    from tuner.search.samplers.curve_gp.gaussian_process import Posterior

Array = NDArray[np.float64]

#: Maximum number of pruned and paused trials that count as if they ended as predicted.
_N_SET_ASIDE = 50


class OneObjective:
    """The process of one study.

    Args:
        limit: Maximum number of points.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._model = Regression()

    def learn(
        self,
        trials: Sequence[FrozenTrial],
        directions: Sequence[StudyDirection],
        row_of: RowOf,
        scales: Scales,
        rng: np.random.Generator,
    ) -> Acquisition | None:
        """Fits the process.

        Args:
            trials: The study's trials, with their reports.
            directions: Direction of its only objective.
            row_of: Encodes a trial.
            scales: Length scales of configurations and steps.
            rng: Not used.

        Returns:
            None if no trial that keeps all constraints has reported anything.
        """
        is_maximized = directions[0] is StudyDirection.MAXIMIZE
        points, steps = observed(trials, is_maximized=is_maximized, limit=self._limit)
        able = {each.number for each in trials if not is_infeasible(each) and works(each)}
        counts = np.array([each.trial.number in able for each in points], dtype=bool)
        if not counts.any():
            return None
        x = inputs(points, steps, row_of)
        y = normalized(np.array([each.score for each in points]))
        model = self._model.fit(x, y, scales, n_trials=max(t.number for t in trials) + 1)
        known = model.given(x, y)
        # Where trials are going to end, as far as can be said.
        ends, _ = known.predict(at_the_end(x[:, :-1]))
        best = max(float(y[counts].max()), float(ends[counts].max()))
        tried = [each for each in trials if each.state is TrialState.RUNNING]
        tried += _most_promising(_set_aside(trials, able), known, best, row_of)
        if tried:
            rows = at_the_end(np.stack([row_of(each) for each in tried]))
            believed, _ = known.predict(rows)
            known = model.given(np.vstack([x, rows]), np.append(y, believed))

        def gains(configurations: Array) -> Array:
            return expected_improvement(*known.predict(at_the_end(configurations)), best)

        return Acquisition(gains=gains, leaders=_leaders(points, able))


def _set_aside(trials: Sequence[FrozenTrial], able: Set[int]) -> list[FrozenTrial]:
    """Trials that were pruned, or wait: paused, or queued."""
    states = (TrialState.PRUNED, TrialState.WAITING)
    return [each for each in trials if each.state in states and each.number in able]


def _most_promising(
    trials: Sequence[FrozenTrial], known: Posterior, best: float, row_of: RowOf
) -> list[FrozenTrial]:
    """Those with the largest expected improvements."""
    if not trials:
        return []
    rows = at_the_end(np.stack([row_of(each) for each in trials]))
    gains = expected_improvement(*known.predict(rows), best)
    return [trials[k] for k in np.argsort(-gains, kind="stable")[:_N_SET_ASIDE]]


def _leaders(points: Sequence[Observed], able: set[int]) -> list[FrozenTrial]:
    """The trials with the best values so far, the best first."""
    best: dict[int, Observed] = {}
    for each in sorted(points, key=lambda point: (-point.score, point.trial.number)):
        if each.trial.number in able:
            best.setdefault(each.trial.number, each)
        if len(best) == N_LEADERS:
            break
    return [each.trial for each in best.values()]


def expected_improvement(mean: Array, deviation: Array, best: float) -> Array:
    """[m], over the best (Jones, Schonlau and Welch, 1998), of [m] means and deviations."""
    z = (mean - best) / deviation
    below = 0.5 * (1.0 + np.vectorize(math.erf)(z / math.sqrt(2.0)))
    density = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    improvement: Array = deviation * (z * below + density)
    return improvement
