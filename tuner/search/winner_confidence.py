"""Confidence in the winner, from confirmation runs of the leaders."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

_N_DRAWS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmed:
    """Confirmation runs of one leader, without the value that made it a leader.

    That value is biased: the configuration was selected for it.
    """

    trial_number: int
    values: tuple[float, ...]
    #: Probability that its mean is the best; None if each leader ran only once.
    p_best: float | None

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    @property
    def deviation(self) -> float | None:
        """From run to run; None of a single one."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None


def judge_confirmed(
    values: Mapping[int, Sequence[float]], *, is_maximized: bool
) -> tuple[Confirmed, ...]:
    """The leaders with confirmation runs, the best mean first.

    Args:
        values: Values of the runs, by the number of the repeated trial.
        is_maximized: Whether the objective is maximized.
    """
    known = {number: tuple(each) for number, each in values.items() if each}
    chances = chances_of_best(list(known.values()), is_maximized=is_maximized)
    found = [
        Confirmed(trial_number=number, values=each, p_best=chances[place] if chances else None)
        for place, (number, each) in enumerate(known.items())
    ]
    sign = -1.0 if is_maximized else 1.0
    return tuple(sorted(found, key=lambda each: (sign * each.mean, each.trial_number)))


def chances_of_best(
    values: Sequence[Sequence[float]], *, is_maximized: bool
) -> tuple[float, ...] | None:
    """The probability that each group's mean is the best.

    A normal model: the runs of group i are normal around its mean, with a deviation shared by all
    groups. With the flat prior p(means, log deviation) = 1 the pooled variance s2 with v degrees of
    freedom gives variance | runs = v s2 / chi2(v) and mean_i | variance, runs = Normal(average_i,
    variance / n_i) (Gelman et al., Bayesian Data Analysis, 3rd edition, 2013, section 3.2). From
    this posterior 100,000 sets of means are drawn, with a fixed seed, and counted: the same runs
    give the same probabilities, good to 0.002. One deviation for all is a simplification: with five
    runs each a deviation of its own would hardly be known.

    Args:
        values: Runs of each group, at least one each.
        is_maximized: Whether larger values are better.

    Returns:
        None if no group has two runs, because the deviation is then unknown.
    """
    n_free = sum(len(each) - 1 for each in values)
    if n_free < 1:
        return None
    averages = np.array([statistics.fmean(each) for each in values])
    worth = averages if is_maximized else -averages
    squares = sum(
        float(((np.array(each) - average) ** 2).sum())
        for each, average in zip(values, averages, strict=True)
    )
    random = np.random.default_rng(0)
    deviations = np.sqrt(squares / random.chisquare(n_free, _N_DRAWS))
    errors = random.standard_normal((_N_DRAWS, len(values)))
    errors /= np.sqrt([len(each) for each in values])
    drawn = worth + deviations[:, None] * errors
    # Runs that never differ leave ties, which are shared.
    is_first = drawn == drawn.max(axis=1, keepdims=True)
    shares = is_first / is_first.sum(axis=1, keepdims=True)
    return tuple(float(each) for each in shares.mean(axis=0))
