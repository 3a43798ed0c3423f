"""The part of a vertical axis in which the best values differ.

A diverged trial, or one pruned at step 1, is far from all others: on an axis that includes it, the
best so far is a flat line.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tuner.app.data.columns import Floats

#: Share of the values that the part holds at least.
_SHARE = 0.5
#: With fewer values everything is shown, and also if the part would be a large fraction of
#: everything: for evenly spread values it is the half.
_MIN_VALUES, _TOO_MUCH = 10, 1 / 3
_MARGIN = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class BestPart:
    """A range of values, the smaller one first, and how many values are outside."""

    low: float
    high: float
    n_outside: int


def best_part(
    values: Floats, staircase: Floats, *, is_maximized: bool, is_log: bool
) -> BestPart | None:
    """The range from the best value to the median, with margins; None to show everything.

    Args:
        values: All values on the axis; infinite ones and NaN are ignored.
        staircase: Values that must be in the range, such as the later best values so far.
        is_maximized: Whether larger values are better.
        is_log: Whether margins are for a logarithmic axis.
    """
    finite = values[np.isfinite(values)]
    if len(finite) < _MIN_VALUES:
        return None
    put = np.log10 if is_log else np.asarray
    losses = (-1.0 if is_maximized else 1.0) * put(finite)
    ends = (-1.0 if is_maximized else 1.0) * put(staircase)
    best, worst = float(losses.min()), float(losses.max())
    limit = float(np.max([np.quantile(losses, _SHARE), *ends]))
    if limit <= best or limit - best > _TOO_MUCH * (worst - best):
        return None
    margin = _MARGIN * (limit - best)
    bounds = [best - margin, limit + margin]
    n_outside = int((losses > bounds[1]).sum())
    low, high = sorted(-each if is_maximized else each for each in bounds)
    if is_log:
        low, high = 10.0**low, 10.0**high
    return BestPart(low=low, high=high, n_outside=n_outside)
