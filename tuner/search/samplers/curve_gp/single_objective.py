"""One objective: its curve model and the value to improve on."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from tuner.search.rungs.order.stored_trust import last_open_step
from tuner.search.samplers.curve_gp.acquisition import Acquisition, RowOf, Scales, at_the_end
from tuner.search.samplers.curve_gp.feasibility import is_able
from tuner.search.samplers.curve_gp.points import (
    N_LEADERS,
    Observed,
    inputs,
    observed,
    thinned,
)
from tuner.search.samplers.curve_gp.regression import Regression, normalized
from tuner.search.samplers.curve_gp.set_aside import set_aside
from tuner.search.trial_attributes.memo import TrialMemo

if TYPE_CHECKING:
    from tuner.search.samplers.curve_gp.gaussian_process import Posterior

Array = NDArray[np.float64]

#: Where trials report more than once, deviations count this many times.
_WIDENED = 2.0


class OneObjective:
    """The process of one study.

    Args:
        limit: Maximum number of points.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._model = Regression()
        self._curves = TrialMemo(thinned)
        self._are_able = TrialMemo(is_able)

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
        after = last_open_step(trials)
        curves = [*zip(trials, self._curves.of(trials), strict=True)]
        points, steps = observed(curves, is_maximized=is_maximized, limit=self._limit, after=after)
        able = [*itertools.compress(trials, self._are_able.of(trials))]
        numbers = {each.number for each in able}
        counts = np.array([each.trial.number in numbers for each in points], dtype=bool)
        if not counts.any():
            return None
        x = inputs(points, steps, row_of)
        y = normalized(np.array([each.score for each in points]))
        model = self._model.fit(x, y, scales, n_trials=max(t.number for t in trials) + 1)
        known = model.given(x, y)
        width = _WIDENED if any(len(curve) > 1 for _, curve in curves) else 1.0
        # Where trials are going to end, as far as can be said.
        ends, _ = known.predict(at_the_end(x[:, :-1]))
        best = max(float(y[counts].max()), float(ends[counts].max()))
        begun = [row_of(each) for each in trials if each.state is TrialState.RUNNING]
        aside = set_aside(able, row_of, partial(_gains, known, best, width))
        tried = begun if aside is None else [*begun, *aside]
        if tried:
            rows = at_the_end(np.stack(tried))
            believed, _ = known.predict(rows)
            known = model.given(np.vstack([x, rows]), np.append(y, believed))
        return Acquisition(
            gains=partial(_gains, known, best, width), leaders=_leaders(points, numbers)
        )


def _gains(known: Posterior, best: float, width: float, configurations: Array) -> Array:
    """[m], expected improvements of [m, c] configurations, by deviations times `width`.

    The expected improvement is what the next trial is worth, without what later ones learn from
    it, and takes the parameters of the process as known: the search would repeat what is known to
    be good. Wang and de Freitas (arXiv:1406.7758) widen deviations for the second reason. How far
    was measured (docs/decisions.md, 2026-11-29).
    """
    mean, deviation = known.predict(at_the_end(configurations))
    return expected_improvement(mean, width * deviation, best)


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
