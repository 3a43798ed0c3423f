"""Rungs at which trials of several objectives are compared by Pareto rank. No I/O.

The fronts of non-dominated sorting continue one after the other, of the last one those with the
largest crowding distance (Schmucker et al., "Multi-objective Asynchronous Successive Halving",
2021, arXiv:2106.12639; the distance as in NSGA-II, Deb et al. 2002).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tuner.search.rungs.entries import Entry
from tuner.search.rungs.fronts import Fronts, Losses, Places
from tuner.search.rungs.table import RungTable, Standing


class ParetoTable(RungTable):
    """Rungs of a study with several objectives.

    Args:
        first: The step of rung 0, from 1.
        factor: One of this many trials continues, from 2; also the ratio of a rung's step to the
            step of the rung before.
    """

    def __init__(self, *, first: int, factor: int) -> None:
        super().__init__(first=first, factor=factor)
        #: By rung: losses of the trials that reached it, and their numbers, in order of arrival.
        self._fronts: list[Fronts] = []
        self._numbers: list[list[int]] = []
        #: By rung, until another trial arrives: position, front, and first position of an equal
        #: vector, by trial number.
        self._orders: dict[int, dict[int, tuple[int, int, int]]] = {}

    def come_with(self, number: int, rung: int, losses: Sequence[float]) -> list[int]:
        """Records that a trial has reached a rung; skipped rungs count with the same losses.

        Args:
            number: The trial's number.
            rung: The rung.
            losses: One per objective, the smaller the better, not NaN.

        Returns:
            The rungs that are new to it.
        """
        if has_diverged := math.inf in losses:
            losses = [math.inf] * len(losses)
        new = self.come(number, rung, math.inf if has_diverged else 0.0)
        for each in new:
            if each == len(self._fronts):
                self._fronts.append(Fronts())
                self._numbers.append([])
            self._fronts[each].add(losses)
            self._numbers[each].append(number)
            self._orders.pop(each, None)
        return new

    def front_of(self, number: int, rung: int) -> int:
        """Number of better fronts at a rung, as far as trials continue from there."""
        return self._order_at(rung)[number][1]

    def _first_paused(self, rung: int) -> Entry | None:
        order = self._order_at(rung)
        return min(self._rungs[rung].paused, key=lambda each: order[each[1]], default=None)

    def _standing(self, rung: int, entry: Entry) -> Standing:
        loss, number = entry
        n_came = len(self._rungs[rung].came)
        place, _, first = self._order_at(rung)[number]
        return Standing(
            rung=rung,
            loss=loss,
            place=place,
            n_came=n_came,
            bar=math.nan,
            goes_on=(first if self.is_final else place) < self._n_going(n_came),
        )

    def _order_at(self, rung: int) -> dict[int, tuple[int, int, int]]:
        if rung not in self._orders:
            self._orders[rung] = self._order_of(rung)
        return self._orders[rung]

    def _order_of(self, rung: int) -> dict[int, tuple[int, int, int]]:
        if rung >= len(self._fronts):
            return {}
        numbers = np.array(self._numbers[rung])
        by_number = np.argsort(numbers)
        numbers = numbers[by_number]
        fronts = self._fronts[rung].ranks(max(1, self._n_going(len(numbers))))[by_number]
        alone = crowding(self._fronts[rung].losses[by_number], fronts)
        in_order = np.lexsort((numbers, -alone, fronts))
        firsts = _first_places(self._fronts[rung].rows[by_number][in_order])
        rows = zip(range(len(numbers)), fronts[in_order].tolist(), firsts.tolist(), strict=True)
        return dict(zip(numbers[in_order].tolist(), rows, strict=True))


def _first_places(rows: Places) -> Places:
    """[n], for [n] sorted rows: the first position of an equal row."""
    first = np.zeros(int(rows.max()) + 1, dtype=np.int64)
    first[rows[::-1]] = np.arange(len(rows))[::-1]
    return first[rows]


def crowding(losses: Losses, fronts: Places) -> Losses:
    """Crowding distance of vectors on their fronts.

    Args:
        losses: [n, n_objectives].
        fronts: [n], numbers of their fronts.

    Returns:
        [n], the sum over objectives of the distance between both neighbours, as a fraction of the
        front's width; infinite at the ends of a front. An objective in which a front has one value
        only, or an infinite one, is ignored on it.
    """
    alone = np.zeros(len(losses))
    if not len(losses):
        return alone
    sizes = np.bincount(fronts)
    sizes = sizes[sizes > 0]
    ends = np.cumsum(sizes)
    starts = ends - sizes
    for column in losses.T:
        order = np.lexsort((column, fronts))
        ordered = column[order]
        low, high = ordered[starts], ordered[ends - 1]
        counts = np.isfinite(low) & np.isfinite(high) & (low < high)
        gaps = np.zeros(len(losses))
        with np.errstate(invalid="ignore", over="ignore"):  # Those that count for nobody.
            spans = np.where(counts, high - low, 1.0)
            gaps[1:-1] = ordered[2:] - ordered[:-2]
            gaps /= np.repeat(spans, sizes)
        gaps[starts] = gaps[ends - 1] = math.inf
        alone[order] += np.where(np.repeat(counts, sizes), gaps, 0.0)
    return alone
