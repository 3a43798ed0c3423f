"""Remaining durations of attempts, estimated from ended attempts. Pure functions.

An attempt's remaining time follows from the ended attempts that were longer than its age: the
empirical residual life. If too few were longer, it is expected to last as long again as it has
lasted, which is the residual life for an unknown scale (a Pareto distribution with index 1).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

#: Number of ended attempts below which nothing is predicted.
LEAST_ENDED = 10
#: A younger trial may take reserved devices if it ends before the wide one could start with at
#: least this probability. Below 0.5, because a longer one leaves no device idle: other trials pass
#: while it runs. `benchmarks/placement.py --chances` compares 0 to 0.9.
LEAST_CHANCE = 0.25
#: Quantiles of durations that are used; more cost time and change nothing.
_N_QUANTILES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A running attempt, and durations of similar ones.

    Args:
        age_s: Seconds since it got its devices.
        lengths_s: Durations of similar ended attempts, ascending.
    """

    age_s: float
    lengths_s: Sequence[float]

    def chance_to_end_within(self, within_s: float) -> float:
        """The probability that it ends in less than `within_s` seconds from now."""
        n_shorter = bisect_right(self.lengths_s, self.age_s)
        n_longer = len(self.lengths_s) - n_shorter
        if n_longer >= LEAST_ENDED:
            n_ended = bisect_left(self.lengths_s, self.age_s + within_s) - n_shorter
            return max(0, n_ended) / n_longer
        return within_s / (self.age_s + within_s) if within_s > 0 else 0.0

    @property
    def median_left_s(self) -> float:
        """The median of its remaining time, in seconds."""
        n_shorter = bisect_right(self.lengths_s, self.age_s)
        n_longer = len(self.lengths_s) - n_shorter
        if n_longer >= LEAST_ENDED:
            return self.lengths_s[n_shorter + n_longer // 2] - self.age_s
        return self.age_s


def chance_all_end_within(running: Sequence[Running], within_s: float) -> float:
    """The probability that all attempts end in less than `within_s` seconds from now."""
    return math.prod(each.chance_to_end_within(within_s) for each in running)


def chance_to_end_first(lengths_s: Sequence[float], running: Sequence[Running]) -> float:
    """Probability that an attempt that starts now ends before the last of `running` does.

    Args:
        lengths_s: Durations of ended attempts similar to the new one, not empty.
        running: Attempts that a wide trial waits for.
    """
    step = max(1, len(lengths_s) // _N_QUANTILES)
    quantiles_s = lengths_s[step // 2 :: step]
    last_ends_later = (1.0 - chance_all_end_within(running, each_s) for each_s in quantiles_s)
    return sum(last_ends_later) / len(quantiles_s)


def may_pass(
    lengths_s: Sequence[float], running: Sequence[Running], least_chance: float = LEAST_CHANCE
) -> bool:
    """Whether a younger trial may start on devices that are gathered for a wide one.

    Args:
        lengths_s: Durations of ended attempts like the younger one, not empty.
        running: The attempts on the devices that the wide one waits for.
        least_chance: The probability, 0 to 1, with which it has to end before they have ended.
    """
    return chance_to_end_first(lengths_s, running) >= least_chance


def median_until_all_end_s(running: Sequence[Running]) -> float:
    """The time until all attempts have ended, in seconds: with even odds it is less."""
    high_s = max((each.median_left_s for each in running), default=0.0)
    if high_s <= 0:
        return 0.0
    low_s = high_s / 2
    while chance_all_end_within(running, high_s) < 0.5:
        low_s, high_s = high_s, 2 * high_s
    while high_s - low_s > 0.01 * high_s:
        middle_s = (low_s + high_s) / 2
        if chance_all_end_within(running, middle_s) < 0.5:
            low_s = middle_s
        else:
            high_s = middle_s
    return high_s
