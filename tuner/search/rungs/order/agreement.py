"""Agreement of two rankings of the same trials. No I/O."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

END = math.inf
"""In place of a rung: the end of a training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Agreement of the rankings of trials at two steps."""

    n_trials: int
    n_concordant: int
    n_discordant: int

    @property
    def share(self) -> float:
        """Fraction of concordant pairs, without ties; NaN without a pair."""
        n_pairs = self.n_concordant + self.n_discordant
        return self.n_concordant / n_pairs if n_pairs else math.nan

    @property
    def z(self) -> float:
        """Kendall's S over its standard deviation under independence, corrected for continuity."""
        n = self.n_trials
        if n < 2:
            return 0.0
        s = self.n_concordant - self.n_discordant
        corrected = max(abs(s) - 1, 0) / math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
        return math.copysign(corrected, s)


def agreement_of(pairs: Sequence[tuple[float, float]]) -> Agreement:
    """Counts concordant and discordant pairs.

    Args:
        pairs: For each trial, its loss at the earlier and at the later step.
    """
    n_concordant = n_discordant = 0
    for i, (early, late) in enumerate(pairs):
        for other_early, other_late in list(pairs)[:i]:
            product = _sign(early, other_early) * _sign(late, other_late)
            n_concordant += product > 0
            n_discordant += product < 0
    return Agreement(n_trials=len(pairs), n_concordant=n_concordant, n_discordant=n_discordant)


def _sign(one: float, other: float) -> int:
    # A product of two small differences may be zero.
    return (one > other) - (one < other)


@dataclass(frozen=True, slots=True, kw_only=True)
class RungTrust:
    """Reliability of a rung."""

    is_open: bool
    #: Trials after this one count.
    after: int
    #: What contradicts it most: a later rung, k + 0.5 for halfway from rung k to the next, or END.
    later: float
    agreement: Agreement
