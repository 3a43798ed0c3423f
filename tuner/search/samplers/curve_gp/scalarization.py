"""Expected improvement of a random weighting of several objectives. No I/O.

The objectives are weighted by the augmented Chebyshev norm, with new weights for each suggestion
(Knowles, "ParEGO", IEEE Transactions on Evolutionary Computation 10, 2006), of predictions of each
objective (as qParEGO in Daulton, Balandat and Bakshy, arXiv:2006.05078). Unlike the hypervolume,
its cost does not grow with the front.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: Weight of the sum, relative to the largest term, as in ParEGO.
_OF_THE_SUM = 0.05
_N_DRAWS = 64


class Weighting:
    """Random weights of objectives.

    Args:
        front: [k, m], losses of which none dominates another.
        reference: [m], worse than the front in each objective.
        rng: Draws the weights, and the values at which expectations are taken.
    """

    def __init__(self, front: Array, reference: Array, rng: np.random.Generator) -> None:
        n_objectives = front.shape[1]
        self._ideal = front.min(axis=0)
        self._width = reference - self._ideal
        self._weights = rng.dirichlet(np.ones(n_objectives))
        self._draws = rng.normal(size=(_N_DRAWS, 1, n_objectives))
        self._best = float(self._weighted(front).min())

    def expected_improvement(self, mean: Array, deviation: Array) -> Array:
        """[n], of losses that are independent and normal with [n, m] means and deviations."""
        values = self._weighted(mean[None] + self._draws * deviation[None])
        improvement: Array = np.maximum(self._best - values, 0.0).mean(axis=0)
        return improvement

    def _weighted(self, losses: Array) -> Array:
        terms = self._weights * (losses - self._ideal) / self._width
        weighted: Array = terms.max(axis=-1) + _OF_THE_SUM * terms.sum(axis=-1)
        return weighted
