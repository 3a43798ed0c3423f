"""Predictions and acquisition values for one or several objectives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from optuna.trial import FrozenTrial

Array = NDArray[np.float64]
RowOf = Callable[[FrozenTrial], Array]
"""[c], a trial's configuration, from 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquisition:
    """An acquisition function and the best trials.

    Attributes:
        gains: Maps [m, c] configurations to [m] expected gains.
        leaders: The best trials so far.
    """

    gains: Callable[[Array], Array]
    leaders: Sequence[FrozenTrial]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scales:
    """Inputs of a process over configurations, or over these and steps.

    Attributes:
        columns: [c], which length scale each column has.
        lengths: [d], the likeliest ones before anything is known.
    """

    columns: Sequence[int]
    lengths: Sequence[float]

    def with_steps(self, length: float) -> Scales:
        """With one more column, of the step."""
        columns = [*self.columns, len(self.lengths)]
        return Scales(columns=columns, lengths=[*self.lengths, length])


def at_the_end(configurations: Array) -> Array:
    """[m, c + 1], of [m, c] configurations: their last step, which is 1."""
    return np.hstack([configurations, np.ones((len(configurations), 1))])
