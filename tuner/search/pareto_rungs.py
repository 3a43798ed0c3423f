"""Rungs at which trials of several objectives are compared by Pareto rank. No I/O.

The fronts of non-dominated sorting go on one after the other, the last of them in part, and there
who stands most alone (Schmucker et al., "Multi-objective Asynchronous Successive Halving", 2021,
arXiv:2106.12639, with the crowding distance of NSGA-II, Deb et al. 2002).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from optuna.study._multi_objective import _fast_non_domination_rank

from tuner.search.rungs import Entry, RungTable, Standing

Losses = npt.NDArray[np.float64]


class ParetoTable(RungTable):
    """Rungs of a study with several objectives.

    Args:
        first: The step of rung 0, from 1.
        factor: One in so many goes on, from 2; each rung lies at so many times the step before it.
    """

    def __init__(self, *, first: int, factor: int) -> None:
        super().__init__(first=first, factor=factor)
        #: By trial number: what it came to each rung with.
        self._vectors: dict[int, list[Sequence[float]]] = {}
        #: By rung, as far as nobody has come there since: place and front by trial number.
        self._orders: dict[int, dict[int, tuple[int, int]]] = {}

    def come_with(self, number: int, rung: int, losses: Sequence[float]) -> list[int]:
        """A trial has come to a rung; what it skipped on the way counts as come to with the same.

        Args:
            number: Of the trial.
            rung: Which.
            losses: One for each objective, the smaller the better, not NaN.

        Returns:
            The rungs that are new to it.
        """
        if has_diverged := math.inf in losses:
            losses = [math.inf] * len(losses)
        new = self.come(number, rung, math.inf if has_diverged else 0.0)
        for each in new:
            self._vectors.setdefault(number, []).append(losses)
            self._orders.pop(each, None)
        return new

    def front_of(self, number: int, rung: int) -> int:
        """Of those that came to a rung so many fronts are better, as far as anybody goes on."""
        return self._order_at(rung)[number][1]

    def _first_paused(self, rung: int) -> Entry | None:
        order = self._order_at(rung)
        return min(self._rungs[rung].paused, key=lambda each: order[each[1]], default=None)

    def _standing(self, rung: int, entry: Entry) -> Standing:
        loss, number = entry
        n_came = len(self._rungs[rung].came)
        place = self._order_at(rung)[number][0]
        return Standing(
            rung=rung,
            loss=loss,
            place=place,
            n_came=n_came,
            bar=math.nan,
            goes_on=place < self._n_going(n_came),
        )

    def _order_at(self, rung: int) -> dict[int, tuple[int, int]]:
        if rung not in self._orders:
            numbers = [number for _, number in self._rungs[rung].came]
            losses = np.array([self._vectors[each][rung] for each in numbers], dtype=float)
            fronts, alone = ranked(losses, n_best=self._n_going(len(numbers)))
            in_order = np.lexsort((np.array(numbers), -alone, fronts))
            self._orders[rung] = {
                numbers[each]: (place, int(fronts[each])) for place, each in enumerate(in_order)
            }
        return self._orders[rung]


def ranked(losses: Losses, *, n_best: int) -> tuple[npt.NDArray[np.int64], Losses]:
    """Sorts by front, and says how alone each stands on its own.

    Args:
        losses: [n, n_objectives], the smaller the better.
        n_best: As many are told apart at least; the rest may share one front.

    Returns:
        [n], numbers of fronts from 0, and [n], crowding distances; the ends of a front stand
        infinitely alone.
    """
    if not len(losses):
        return np.zeros(0, dtype=np.int64), np.zeros(0)
    # Optuna's own takes the square of the number of trials only where there are three objectives.
    fronts = np.asarray(_fast_non_domination_rank(losses, n_below=max(1, n_best)), dtype=np.int64)
    alone = np.zeros(len(losses))
    for front in np.unique(fronts):
        members = np.flatnonzero(fronts == front)
        alone[members] = _crowding(losses[members])
    return fronts, alone


def _crowding(losses: Losses) -> Losses:
    """[n], the sum over objectives of how far apart the neighbours on both sides are."""
    distances = np.zeros(len(losses))
    for column in losses.T:
        order = np.argsort(column, kind="stable")
        ordered = column[order]
        if not np.isfinite(ordered[[0, -1]]).all() or ordered[0] == ordered[-1]:
            continue
        span = ordered[-1] - ordered[0]
        gaps = np.full(len(losses), math.inf)
        gaps[1:-1] = (ordered[2:] - ordered[:-2]) / span
        distances[order] += gaps
    return distances
