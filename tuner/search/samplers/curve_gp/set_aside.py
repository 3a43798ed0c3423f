"""Trials that were pruned or wait: they count as if they had ended as predicted.

Otherwise a search may stand still: a configuration with a promising but uncertain end is suggested,
pruned because of its first reports, which say little about its end, and so stays the most promising
one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from optuna.trial import FrozenTrial, TrialState

from tuner.search.samplers.curve_gp.acquisition import RowOf

Array = NDArray[np.float64]

#: Maximum number of trials that count: each is one more point of the process.
_N_MOST = 50


def set_aside(
    trials: Sequence[FrozenTrial], row_of: RowOf, gains: Callable[[Array], Array]
) -> Array | None:
    """The most promising of the pruned, paused and queued trials.

    Args:
        trials: Those of the study that worked and broke no constraint.
        row_of: Encodes a trial.
        gains: Maps [m, c] configurations to [m] expected gains.

    Returns:
        [m, c] configurations, the best first; None without any.
    """
    states = (TrialState.PRUNED, TrialState.WAITING)
    found = [row_of(each) for each in trials if each.state in states]
    if not found:
        return None
    rows = np.stack(found)
    chosen: Array = rows[np.argsort(-gains(rows), kind="stable")[:_N_MOST]]
    return chosen
