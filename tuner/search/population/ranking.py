"""Ranks the members of a population by their reports. No I/O.

Trials never wait for a comparison: a member is compared at its latest interval with those that have
reached it by then, by their values there. It is compared again as more arrive, so that early
members are not spared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A member's value at an interval."""

    number: int
    #: The interval's step.
    at: int
    #: Step of the report used, which may be later than `at`.
    step: int
    #: The smaller the better; infinite for NaN.
    loss: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """The reports of a member.

    Args:
        number: The member's number.
        curve: Its reports by step.
        begun_at: Step of the checkpoint that it started from, 0 for none. It trains for a whole
            interval before it is compared.
    """

    number: int
    curve: Mapping[int, float]
    begun_at: int = 0

    def latest(self, every: int) -> int | None:
        """The latest multiple of `every` steps that it has reached; None before its first."""
        latest = max(self.curve, default=0) // every * every
        return latest if latest >= self.begun_at + every else None

    def mark(self, at: int, every: int, sign: float) -> Mark | None:
        """Its first report at or after a multiple of `every` steps; None if there is none.

        Args:
            at: The multiple.
            every: Steps of an interval.
            sign: -1 if larger values are better, else 1.
        """
        step = min((each for each in self.curve if each >= at), default=None)
        if step is None or at < self.begun_at + every:
            return None
        loss = sign * self.curve[step]
        return Mark(
            number=self.number, at=at, step=step, loss=math.inf if math.isnan(loss) else loss
        )


def strongest(marks: Sequence[Mark], quantile: float) -> list[Mark]:
    """The upper quantile, the best first; empty if it is smaller than one member."""
    in_order = sorted(marks, key=lambda each: (each.loss, each.number))
    n_strong = _n_of(marks, quantile)
    return [each for each in in_order[:n_strong] if each.loss < math.inf]


def good_first(marks: Sequence[Sequence[Mark]], quantile: float) -> list[list[Mark]]:
    """Members that may be copied into an empty place: groups, the better first.

    Args:
        marks: Marks by interval, the furthest first.
        quantile: Fraction of a population that counts as strong.

    Returns:
        The strongest of each interval, then each member by itself.
    """
    strong = [strongest(each, quantile) for each in marks]
    return [*strong, *([mark] for each in marks for mark in strongest(each, 1.0))]


def is_weak(mark: Mark, marks: Sequence[Mark], quantile: float) -> bool:
    """Whether a member is in the lower quantile: nearly all others are better, and not equal."""
    n_weak = _n_of(marks, quantile)
    n_better = sum(each.loss < mark.loss for each in marks)
    return n_weak > 0 and n_better >= len(marks) - n_weak


def _n_of(marks: Sequence[Mark], quantile: float) -> int:
    # 10 * 0.3 is 3.0000000000000004, and 0.29 * 100 is 28.999999999999996.
    return math.floor(len(marks) * quantile + 1e-9)
