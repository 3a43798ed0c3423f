"""Predicts training curves with a Gaussian process.

As in "Freeze-thaw Bayesian optimization" (Swersky, Snoek and Adams, 2014, arXiv:1406.3896), a curve
is the sum of a term of its configuration and a term of its own, so that a training that is better
than its neighbours is expected to stay better.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.search.samplers.curve_gp.points import Steps, fence_of
from tuner.search.samplers.curve_gp.single_objective import expected_improvement

Array = NDArray[np.float64]

#: Before anything is known: in parts of a parameter's range, and of the logarithm of the last step.
_LENGTH_OF_PARAMETER = 0.6
_LENGTH_OF_STEPS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A step of a training."""

    #: The trial's number; an unused one if the trial has not started.
    number: int
    #: [d], its configuration, between 0 and 1.
    row: Array
    step: int


class CurveModel:
    """Expected improvement at any step of any training."""

    def __init__(self) -> None:
        self._model: Any = None
        self._known: Any = None
        self._steps = Steps(first=1, last=1)
        self._best, self._deviation = 0.0, 1.0

    @classmethod
    def load(cls) -> None:
        """Imports all that it needs: torch takes seconds, and its optimizers take seconds more."""
        places = [Place(number=0, row=np.zeros(0), step=step) for step in (1, 2, 4)]
        cls().fit(places, [0.0, 1.0, 2.0], Steps(first=1, last=4))

    def fit(self, places: Sequence[Place], scores: Sequence[float], steps: Steps) -> None:
        """Fits the parameters to observations, starting from scratch.

        Args:
            places: Configurations and steps of the reports.
            scores: Their values, the larger the better.
            steps: The first and last step of a training.
        """
        from tuner.search.samplers.curve_gp.gaussian_process import (
            GaussianProcess,  # torch takes seconds.
        )

        x = _inputs(places, steps)
        n_parameters = x.shape[1] - 2
        lengths = [*[_LENGTH_OF_PARAMETER] * n_parameters, _LENGTH_OF_STEPS]
        self._model = GaussianProcess(lengths, has_groups=True)
        with _one_thread():
            self._model.fit(x, _standardized(scores)[0])

    def learn(
        self, places: Sequence[Place], scores: Sequence[float], steps: Steps, best: float
    ) -> None:
        """Replaces the observations; requires a `fit`.

        Args:
            places: Configurations and steps of the reports.
            scores: Their values, the larger the better.
            steps: The first and last step of a training.
            best: The best of all scores, including those left out here.
        """
        y, mean, self._deviation = _standardized(scores)
        self._steps = steps
        self._best = (best - mean) / self._deviation
        with _one_thread():
            self._known = self._model.given(_inputs(places, steps), y)

    def improvement(self, places: Sequence[Place]) -> Array:
        """[m], expected improvement over the best; 0 if impossible."""
        with _one_thread():
            mean, deviation = self._known.predict(_inputs(places, self._steps))
        return self._deviation * expected_improvement(mean, deviation, self._best)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Two threads that share a busy core wait for each other, and matrices are small here."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _inputs(places: Sequence[Place], steps: Steps) -> Array:
    """[n, d + 2]: configuration, step and trial."""
    return np.stack([np.append(each.row, (steps.place(each.step), each.number)) for each in places])


def _standardized(scores: Sequence[float]) -> tuple[Array, float, float]:
    """[n], with mean 0 and variance 1, and the mean and the deviation that they had."""
    known = [each for each in scores if each > -np.inf]
    low = max(fence_of(known), min(known)) if known else 0.0
    y = np.maximum(np.array(scores), low)
    mean, deviation = float(y.mean()), float(y.std()) or 1.0
    return (y - mean) / deviation, mean, deviation
