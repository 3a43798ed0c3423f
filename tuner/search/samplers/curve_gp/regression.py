"""A Gaussian process of configurations that is refitted as a study grows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tuner.search.samplers.curve_gp.acquisition import Scales

if TYPE_CHECKING:
    from tuner.search.samplers.curve_gp.gaussian_process import GaussianProcess

Array = NDArray[np.float64]

#: Refit when the number of trials has grown by this factor.
_REFIT_AT = 1.2
#: Exponents that are tried; 1 leaves values as they are.
_POWERS = np.arange(-8, 17) / 4.0


class Regression:
    """The process of one quantity, of one study after the other."""

    def __init__(self) -> None:
        self._model: GaussianProcess | None = None
        self._columns: list[int] = []
        self._n_fitted = 0

    def fit(self, x: Array, y: Array, scales: Scales, *, n_trials: int) -> GaussianProcess:
        """Fits the process, if the study has grown enough.

        Args:
            x: [n, c], inputs.
            y: [n], outputs with mean 0 and variance 1.
            scales: Length scales of the inputs.
            n_trials: Number of the study's trials.
        """
        # Several threads may call this (Optuna's n_jobs): each continues with its own model.
        model = self._model
        if model is None or self._columns != [*scales.columns]:
            model = unfitted(scales)
            self._model, self._columns, self._n_fitted = model, [*scales.columns], 0
        if n_trials >= self._n_fitted * _REFIT_AT:
            model.fit(x, y)
            self._n_fitted = n_trials
        return model


def unfitted(scales: Scales) -> GaussianProcess:
    """A process whose parameters are the prior modes."""
    from tuner.search.samplers.curve_gp.gaussian_process import (
        GaussianProcess,  # torch takes seconds.
    )

    return GaussianProcess(scales.lengths, columns=scales.columns)


def standardized(values: Array) -> Array:
    """[n], with mean 0 and variance 1, of [n] values."""
    width = np.ptp(values)
    if width == 0.0:
        return np.zeros_like(values)
    # Squares of small differences would be 0.
    parts = (values - values.min()) / width
    scaled: Array = (parts - parts.mean()) / parts.std()
    return scaled


def normalized(values: Array) -> Array:
    """[n], closer to a normal distribution, with mean 0 and variance 1, of [n] values.

    The power of Yeo and Johnson (Biometrika 87, 2000) with the largest likelihood: accuracies
    crowd below their best and losses above it, and there a process of untransformed values, whose
    noise is the same everywhere, does not tell good from best. An increasing function of values.
    """
    z = standardized(values)
    if np.ptp(z) == 0.0:
        return z
    logs = float((np.sign(z) * np.log1p(np.abs(z))).sum())
    best, most = z, -math.inf
    for power in _POWERS:
        raised = _raised(z, power)
        likelihood = -0.5 * len(z) * math.log(raised.var()) + (power - 1.0) * logs
        if likelihood > most:
            best, most = raised, likelihood
    return standardized(best)


def _raised(z: Array, power: float) -> Array:
    """Yeo and Johnson's transformation, which bends both sides of 0 the same way."""
    up, down = np.log1p(np.maximum(z, 0.0)), np.log1p(np.maximum(-z, 0.0))
    # (exp(p * up) - 1) / p, and its limit for p = 0.
    above = up if power == 0.0 else np.expm1(power * up) / power
    below = down if power == 2.0 else np.expm1((2.0 - power) * down) / (2.0 - power)
    raised: Array = above - below
    return raised


def normal_share_below(z: Array) -> Array:
    """The distribution function of the standard normal distribution, of any shape."""
    from torch import from_numpy, special  # torch takes seconds.

    share: Array = special.ndtr(from_numpy(z)).numpy()
    return share
