"""Where a study will end if its next trials are like its last ones.

The best of m more trials is read off the tail of the values so far: what lies beyond a threshold
follows a generalized Pareto distribution (Coles, An Introduction to Statistical Modeling of Extreme
Values, 2001, chapter 4), whose two numbers come from mean and variance (Hosking and Wallis,
Technometrics 29, 1987). How many of m trials pass the threshold is a Poisson number, so that the
distribution of the best one is known in closed form. It knows nothing of a sampler that learns, and
is too modest where one does; it takes the later half of the trials for that reason. With normal
values, and with uniform and exponential ones, the end lay in the likely range in about three of
four cases (a unit test counts).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

MIN_TRIALS = 20
_TAIL_SHARE = 0.15
_MIN_TAIL = 10
_RESAMPLES = 1000
#: Wider than what is promised: a tail of few values is fitted too short more often than too long.
_QUANTILES = (0.05, 0.5, 0.95)
#: Shapes outside have no variance, or an end that is too near; few values give such by chance.
_SHAPES = (-0.9, 0.4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The best value after more trials."""

    #: How many more trials end.
    n_more: int
    #: The value that it will be with even odds.
    median: float
    #: A likely range: with values of a known kind the end lay in it in three of four cases.
    cautious: float
    hopeful: float


def forecast(
    values: Floats, n_finished: int, *, is_maximized: bool, n_more: int
) -> Forecast | None:
    """None where too few trials have completed, or all their values are the same.

    Args:
        values: [n], of the trials that may be called the best, in the order of their numbers.
        n_finished: Trials that have ended, whatever became of them.
        is_maximized: Of the objective.
        n_more: Trials that will end, whatever becomes of them.
    """
    if len(values) < MIN_TRIALS or n_more <= 0:
        return None
    sign = 1.0 if is_maximized else -1.0
    worth = sign * values
    best = float(worth.max())
    late = worth[-max(MIN_TRIALS, len(worth) // 2) :]
    n_tail = max(_MIN_TAIL, int(_TAIL_SHARE * len(late)))
    ordered = np.sort(late)
    threshold, beyond = float(ordered[-n_tail - 1]), ordered[-n_tail:]
    expected = n_more * (len(values) / n_finished) * n_tail / len(late)
    gains = _quantiles(beyond - threshold, expected)
    if gains is None:
        return None
    low, middle, high = (sign * max(best, threshold + gain) for gain in gains)
    return Forecast(n_more=n_more, cautious=low, median=middle, hopeful=high)


def _quantiles(excess: Floats, expected: float) -> list[float] | None:
    """Of the largest of a Poisson number of excesses.

    The tail is known from few values: it is fitted to resamples of them (a bootstrap), and each
    fit gives one largest excess. The draws are the same each time, so that a page does not flicker.
    """
    if not float(excess.var()) > 0:
        return None
    random = np.random.default_rng(0)
    samples = random.choice(excess, (_RESAMPLES, len(excess)))
    means, variances = samples.mean(axis=1), samples.var(axis=1, ddof=1)
    usable = variances > 0
    means, variances = means[usable], variances[usable]
    shapes = np.clip(0.5 * (1 - means**2 / variances), *_SHAPES)
    shapes = np.where(np.abs(shapes) < 1e-6, 1e-6, shapes)
    passed = expected / -np.log(random.uniform(size=len(means)))
    gains = means * (1 - shapes) * (passed**shapes - 1) / shapes
    return [float(each) for each in np.maximum(0.0, np.quantile(gains, _QUANTILES))]


def trials_left(n_finished: int, fraction: float | None, n_allowed: int | None) -> int:
    """How many more will end before the budget does, at the rate so far; 0 where that is open.

    Args:
        n_finished: So far.
        fraction: Of the limit that comes first, 0 to 1.
        n_allowed: Trials of the budget.
    """
    if not fraction or fraction >= 1:
        return 0
    left = round(n_finished / fraction) - n_finished
    return min(left, n_allowed - n_finished) if n_allowed is not None else left
