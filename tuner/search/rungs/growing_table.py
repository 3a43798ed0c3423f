"""Rungs of which the largest grows only while it changes the order of trials. No I/O.

PASHA (Bohdal et al., "PASHA: Efficient HPO and NAS with Progressive Resource Allocation", ICLR
2023, arXiv:2207.06940): trials wait at the largest rung until the ranking there differs from that
of the rung before by more than noise. The noise is seen in pairs of trials whose curves cross, and
cross back: the 90th percentile of their distances.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tuner.search.rungs.table import RungTable

CurveOf = Callable[[int], Mapping[int, float]]
"""What a trial has reported, by step."""

_PERCENTILE = 90
#: Of one rung, the best; pairs are compared, so that the cost grows with the square.
_N_COMPARED = 100
_N_STEPS = 64


class GrowingTable(RungTable):
    """Rungs as in ASHA, of which at first two may be used.

    Args:
        first: The step of rung 0, from 1.
        factor: One in so many goes on, from 2; each rung lies at so many times the step before it.
    """

    def __init__(self, *, first: int, factor: int) -> None:
        super().__init__(first=first, factor=factor)
        self.top = 1

    def grow(self, rung: int, curve_of: CurveOf) -> bool:
        """A trial has come to a rung; says whether there is a larger one from now on."""
        is_outgrown = rung >= self._top and self._is_order_new(curve_of)
        self.top = self._top + is_outgrown
        return is_outgrown

    def _is_order_new(self, curve_of: CurveOf) -> bool:
        """Whether the largest rung tells another order than the one before it."""
        top = self._top
        upper, lower = self.losses_at(top), self.losses_at(top - 1)
        numbers = [each for each, loss in upper.items() if math.isfinite(loss)]
        numbers = [each for each in numbers if math.isfinite(lower[each])]
        in_order = sorted(lower[each] for each in numbers)
        numbers.sort(key=lambda each: (upper[each], each))
        shifts = [
            abs(lower[number] - there) for number, there in zip(numbers, in_order, strict=True)
        ]
        # Whether curves cross is looked up where it matters alone.
        return any(shifts) and max(shifts) > self._noise(curve_of)

    @property
    def _top(self) -> int:
        assert self.top is not None, "these rungs always have a largest"
        return self.top

    def _noise(self, curve_of: CurveOf) -> float:
        """From the largest rung at which curves of trials have crossed twice; 0 before any have."""
        for rung in range(self._top, 0, -1):
            best = list(self.losses_at(rung))[:_N_COMPARED]
            noise = noise_of([curve_of(each) for each in best], self.step_of(rung))
            if noise is not None:
                return noise
        return 0.0


def noise_of(curves: Sequence[Mapping[int, float]], last_step: int) -> float | None:
    """How far apart two trials are whose order means nothing.

    Args:
        curves: Of the trials, by step.
        last_step: What they reported later is not looked at.

    Returns:
        None where no two curves have crossed and crossed back.
    """
    common = set.intersection(*(set(curve) for curve in curves)) if curves else set()
    steps = sorted(step for step in common if step <= last_step)
    if len(curves) < 2 or len(steps) < 3:
        return None
    chosen = np.unique(np.linspace(0, len(steps) - 1, _N_STEPS).astype(int))
    values = np.array([[curve[steps[each]] for each in chosen] for curve in curves])
    one, other = np.triu_indices(len(curves), k=1)
    apart = values[one] - values[other]  # [n_pairs, n_steps]
    order = np.nan_to_num(np.sign(apart) * np.sign(apart[:, -1:]))
    is_first_as_last = np.argmax(order > 0, axis=1)
    last_opposite = order.shape[1] - 1 - np.argmax(order[:, ::-1] < 0, axis=1)
    has_crossed = (order < 0).any(axis=1) & (is_first_as_last < last_opposite)
    distances = np.abs(apart[has_crossed, -1])
    return float(np.percentile(distances, _PERCENTILE)) if len(distances) else None
