"""Throughput of attempts at one level of packing, and comparison of two levels."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

#: Minimum number of reports to judge a level.
MIN_REPORTS = 8
#: Standard deviation to mean, of the time between reports and of the speeds of a few attempts.
_SPREAD_OF_REPORTS = 0.3
_SPREAD_OF_ATTEMPTS = 0.7
_FEW_ATTEMPTS = 4
#: Comparisons are never surer than this.
_MIN_ERROR = 0.01
#: The newest attempts, which a level is known by.
_MAX_TALLIES = 100


@dataclass(slots=True, kw_only=True)
class Tally:
    """Throughput of one attempt at one level."""

    seconds: float = 0.0
    n_events: int = 0
    #: The same between its first report and its end. Both of these are half within.
    steady_s: float = 0.0
    n_steady: float = 0.0


@dataclass(slots=True, kw_only=True)
class Measure:
    """Throughput of attempts at one level."""

    level: int
    tallies: dict[str, Tally] = field(default_factory=dict)

    def of(self, attempt_id: str) -> Tally:
        if attempt_id not in self.tallies and len(self.tallies) >= _MAX_TALLIES:
            del self.tallies[next(iter(self.tallies))]
        return self.tallies.setdefault(attempt_id, Tally())

    @property
    def seconds(self) -> float:
        """Device-seconds, not attempt-seconds."""
        return sum(tally.seconds for tally in self.tallies.values()) / self.level

    @property
    def n_events(self) -> int:
        return sum(tally.n_events for tally in self.tallies.values())

    def error(self, n_events: float) -> float:
        """Standard error of the throughput, relative to it, with attempts as the sample."""
        n_attempts = len(self.tallies)
        if n_attempts < _FEW_ATTEMPTS:
            return _SPREAD_OF_ATTEMPTS / math.sqrt(n_attempts)
        rate = n_events / (self.seconds * self.level)
        squares = sum((each.n_events - rate * each.seconds) ** 2 for each in self.tallies.values())
        return math.sqrt(squares * n_attempts / (n_attempts - 1)) / n_events


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Throughput at one level in parts of that at another."""

    ratio: float
    #: Standard error, relative to the ratio.
    error: float

    def exceeds(self, least: float, *, is_late: bool) -> bool | None:
        error = 0.0 if is_late else self.error
        if self.ratio > least * (1 + error):
            return True
        return False if self.ratio <= least * (1 - error) else None


def joined(*comparisons: Comparison | None) -> Comparison | None:
    """The mean, weighted by how sure each is."""
    known = [each for each in comparisons if each is not None]
    if not known:
        return None
    weights = [max(each.error, _MIN_ERROR) ** -2 for each in known]
    logs = [math.log(max(each.ratio, 1e-9)) for each in known]
    mean = sum(weight * log for weight, log in zip(weights, logs, strict=True)) / sum(weights)
    return Comparison(ratio=math.exp(mean), error=sum(weights) ** -0.5)


def compare_pairs(now: Measure, before: Measure, *, startup_share: float) -> Comparison | None:
    """Compares two levels by attempts that ran at both, each against itself.

    Args:
        now: The level on trial.
        before: The best level.
        startup_share: Fraction of an attempt's duration before its first report, in which a level
            does not slow it down.
    """
    both = [
        (tally, before.tallies[attempt_id])
        for attempt_id, tally in now.tallies.items()
        if attempt_id in before.tallies and before.tallies[attempt_id].steady_s > 0
    ]
    n_now = sum(after.n_steady for after, _ in both)
    n_before = sum(early.n_steady for _, early in both)
    n_expected = sum(after.steady_s * early.n_steady / early.steady_s for after, early in both)
    n = max(n_now, n_expected)
    if min(n, n_before) < MIN_REPORTS / 2 or not n_expected:
        return None
    speed = max(n_now, 1e-9) / n_expected
    ratio = now.level / before.level / (startup_share + (1 - startup_share) / speed)
    # The position of a span's ends between two reports is random: a variance of 1/6 for each.
    edges = len(both) / 6 * (n**-2 + n_before**-2)
    spread = _SPREAD_OF_REPORTS**2 * (1 / n + 1 / n_before)
    return Comparison(ratio=ratio, error=math.sqrt(edges + spread))


def compare_means(now: Measure, before: Measure, *, min_events: int) -> Comparison | None:
    """By all attempts at each level."""
    if not before.n_events:
        return None
    n_expected = before.n_events / before.seconds * now.seconds
    n = max(now.n_events, n_expected)
    if n < min_events:
        return None
    error = math.hypot(now.error(n), before.error(before.n_events))
    return Comparison(ratio=now.n_events / n_expected, error=error)
