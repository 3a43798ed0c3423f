"""A Gaussian process of configurations that is refitted as a study grows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tuner.search.samplers.curve_gp.acquisition import Scales

if TYPE_CHECKING:
    from tuner.search.samplers.curve_gp.gaussian_process import GaussianProcess

Array = NDArray[np.float64]

#: Refit when the number of trials has grown by this factor.
_REFIT_AT = 1.2


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
    # The mean of equal values may differ from them by rounding.
    scale = values.std() if np.ptp(values) > 0.0 else 1.0
    scaled: Array = (values - values.mean()) / scale
    return scaled


def normal_share_below(z: Array) -> Array:
    """The distribution function of the standard normal distribution, of any shape."""
    from torch import from_numpy, special  # torch takes seconds.

    share: Array = special.ndtr(from_numpy(z)).numpy()
    return share
