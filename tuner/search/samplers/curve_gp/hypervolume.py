"""Expected hypervolume improvement of points whose objectives are independent and normal. No I/O.

The region that no point of a front dominates is split into boxes. The improvement of a box is a
product over objectives, so its expectation is exact (Yang, Emmerich, Deutz and Bäck, "Efficient
computation of expected hypervolume improvement using box decomposition algorithms", Journal of
Global Optimization 75, 2019). The boxes are Optuna's (Lacour, Klamroth and Fonseca, 2017).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tuner.search.samplers.curve_gp.regression import normal_share_below
from tuner.store.optuna_compat import non_dominated_boxes, non_domination_rank

Array = NDArray[np.float64]

#: Distance of the reference point behind the worst of a front, as a fraction of its width
#: (Ishibuchi et al., "How to specify a reference point in hypervolume calculation", 2018; as in
#: BoTorch).
_BEHIND = 0.1
#: Candidates per batch, to limit the table of candidates and boxes.
_AT_A_TIME = 256


def front_of(losses: Array) -> Array:
    """[k, m], the non-dominated vectors of [n, m], without duplicates."""
    unique = np.unique(losses, axis=0)
    front: Array = unique[non_domination_rank(unique, n_below=1) == 0]
    return front


def reference_point(front: Array, losses: Array) -> Array:
    """[m], slightly worse than the worst value of a front in each objective.

    Args:
        front: [k, m].
        losses: [n, m], all vectors: their width is used if the front has one value only.
    """
    widths = np.ptp(front, axis=0)
    widths = np.where(widths > 0.0, widths, np.ptp(losses, axis=0))
    point: Array = front.max(axis=0) + _BEHIND * np.where(widths > 0.0, widths, 1.0)
    return point


def expected_hypervolume_improvement(
    mean: Array, deviation: Array, *, front: Array, reference: Array
) -> Array:
    """Expected hypervolume improvement of points.

    Args:
        mean: [n, m], predicted losses.
        deviation: [n, m], their standard deviations.
        front: [k, m], known losses: no point dominates another.
        reference: [m], worse than the front in each objective.

    Returns:
        [n], the expected growth of the hypervolume.
    """
    low, high = non_dominated_boxes(front, reference)
    parts = [
        _improvement(mean[at : at + _AT_A_TIME], deviation[at : at + _AT_A_TIME], low, high)
        for at in range(0, len(mean), _AT_A_TIME)
    ]
    return np.concatenate(parts)


def _improvement(mean: Array, deviation: Array, low: Array, high: Array) -> Array:
    widths = np.ones((len(mean), len(low)))
    for place in range(mean.shape[1]):
        of_one, spread = mean[:, place, None], deviation[:, place, None]
        widths *= _below(high[None, :, place], of_one, spread) - _below(
            low[None, :, place], of_one, spread
        )
    total: Array = np.maximum(widths, 0.0).sum(axis=1)
    return total


def _below(bound: Array, mean: Array, deviation: Array) -> Array:
    """Expected amount by which a normal variable is below a bound, 0 if above."""
    z = np.where(np.isfinite(bound), (bound - mean) / deviation, -math.inf)
    density = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    gap = np.where(np.isfinite(bound), bound - mean, 0.0)
    found: Array = gap * normal_share_below(z) + deviation * density
    return found
