"""Forecasts a study's final value, assuming that its next trials are like its last ones.

The best of m more trials is estimated from the tail of the values so far: excesses over a threshold
follow a generalized Pareto distribution (Coles, An Introduction to Statistical Modeling of Extreme
Values, 2001, chapter 4), whose two parameters come from mean and variance (Hosking and Wallis,
Technometrics 29, 1987). The number of m trials that pass the threshold is Poisson distributed, so
that the distribution of the best one is known in closed form. It does not model a sampler that
learns, and is too pessimistic for one; for that reason it uses the later half of the trials. With
normal, uniform and exponential values, the final value was in the likely range in about three of
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
#: Wider than the nominal range: the tail of few values is more often fitted too short than too
#: long.
_QUANTILES = (0.05, 0.5, 0.95)
#: Shapes outside have no variance, or an end that is too near; few values give such by chance.
_SHAPES = (-0.9, 0.4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The best value after more trials."""

    #: Number of trials still to end.
    n_more: int
    #: The value that it will be with even odds.
    median: float
    #: Likely range: for known distributions, it contained the final value in three of four cases.
    cautious: float
    hopeful: float


def forecast(
    values: Floats, n_finished: int, *, is_maximized: bool, n_more: int
) -> Forecast | None:
    """None if too few trials have completed, or all their values are equal.

    Args:
        values: [n], of feasible completed trials, in the order of their numbers.
        n_finished: Number of ended trials, in any state.
        is_maximized: Whether the objective is maximized.
        n_more: Number of trials still to end, in any state.
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
    """Quantiles of the largest of a Poisson number of excesses.

    The tail is known from few values: it is fitted to bootstrap samples of them, and each fit gives
    one largest excess. The draws are the same each time, so that a page does not flicker.
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
    """Number of trials that will end within the budget, at the rate so far; 0 if unknown.

    Args:
        n_finished: Trials finished so far.
        fraction: Used fraction of the limit that is closest to its end, 0 to 1.
        n_allowed: Trials of the budget.
    """
    if not fraction or fraction >= 1:
        return 0
    left = round(n_finished / fraction) - n_finished
    return min(left, n_allowed - n_finished) if n_allowed is not None else left
