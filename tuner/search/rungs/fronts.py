"""Non-dominated fronts of loss vectors, updated one vector at a time. No I/O.

A new vector moves few of the others: those of its own front that it dominates drop to the next
front, which drops some in turn (Li, Deb, Zhang and Zhang, "Efficient Nondomination Level Update
Method for Steady-State Evolutionary Multiobjective Optimization", IEEE Transactions on Cybernetics
47, 2017; its own front is found by bisection, as in Zhang et al., "An Efficient Approach to
Nondominated Sorting", IEEE Transactions on Evolutionary Computation 19, 2015).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tuner.store.optuna_compat import non_domination_rank

Losses = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

#: If more than one of this many vectors is new, all are sorted at once.
_MANY = 16
#: Vectors per comparison with a front, to limit the table of pairs.
_AT_A_TIME = 256


class Fronts:
    """Non-dominated fronts, the best first; equal vectors share a front."""

    def __init__(self) -> None:
        #: By vector: its row. Those from `_n_sorted` on are on no front yet.
        self._rows: dict[tuple[float, ...], int] = {}
        #: By vector that was added, in order.
        self._row_of: list[int] = []
        self._points: Losses = np.zeros((0, 0))
        #: Rows of each.
        self._fronts: list[Places] = []
        self._n_sorted = 0

    def add(self, losses: Sequence[float]) -> None:
        """Takes one more.

        Args:
            losses: One for each objective, as many as all others have, not NaN.
        """
        self._row_of.append(self._rows.setdefault(tuple(losses), len(self._rows)))

    @property
    def losses(self) -> Losses:
        """[n, n_objectives], in the order in which they were added."""
        self._settle()
        return self._points[self._row_of]

    @property
    def rows(self) -> Places:
        """[n], numbers of the different vectors, in the order in which they were added."""
        return np.array(self._row_of, dtype=np.int64)

    def ranks(self, n_best: int) -> Places:
        """Numbers of fronts, from 0, in the order in which the vectors were added.

        Args:
            n_best: Minimum number of distinct vectors that are ranked; the rest share one front.

        Returns:
            [n]
        """
        self._settle()
        ranks = np.zeros(len(self._rows), dtype=np.int64)
        n_told = 0
        for front, rows in enumerate(self._fronts):
            ranks[rows] = front
            if n_told < n_best:
                n_told, last = n_told + len(rows), front
        if self._fronts:
            np.minimum(ranks, last + 1, out=ranks)
        return ranks[self._row_of]

    def _settle(self) -> None:
        """Puts the new ones on fronts."""
        n_new = len(self._rows) - self._n_sorted
        if not n_new:
            return
        points = np.array([*self._rows][self._n_sorted :], dtype=float)
        self._points = np.concatenate([self._points, points]) if self._n_sorted else points
        if n_new * _MANY > len(self._rows):
            ranks = non_domination_rank(self._points)
            in_order = np.argsort(ranks, kind="stable")
            self._fronts = np.split(in_order, np.cumsum(np.bincount(ranks))[:-1])
        else:
            for row in range(self._n_sorted, len(self._rows)):
                self._insert(row)
        self._n_sorted = len(self._rows)

    def _insert(self, row: int) -> None:
        front = self._first_without_better(row)
        moving = np.array([row])
        while front < len(self._fronts):
            here = self._fronts[front]
            falls = self._are_dominated(here, moving)
            self._fronts[front] = np.concatenate([here[~falls], moving])
            if falls.all():
                # Each on the next front is below one of these: they all move by one.
                self._fronts.insert(front + 1, here)
                return
            moving, front = here[falls], front + 1
            if not len(moving):
                return
        self._fronts.append(moving)

    def _first_without_better(self, row: int) -> int:
        """The first front without a vector that dominates this one."""
        low, high = 0, len(self._fronts)
        while low < high:
            middle = (low + high) // 2
            rows = self._fronts[middle]
            if (self._points[rows] <= self._points[row]).all(axis=1).any():
                low = middle + 1
            else:
                high = middle
        return low

    def _are_dominated(self, rows: Places, by: Places) -> npt.NDArray[np.bool_]:
        """[len(rows)], whether a vector of `by` is no worse in any objective; none are equal."""
        found = np.zeros(len(rows), dtype=np.bool_)
        of_rows = self._points[rows].T
        for begin in range(0, len(by), _AT_A_TIME):
            better = self._points[by[begin : begin + _AT_A_TIME]].T
            pairs = np.ones((better.shape[1], len(rows)), dtype=np.bool_)
            for mine, other in zip(of_rows, better, strict=True):
                pairs &= other[:, None] <= mine[None, :]
            found |= pairs.any(axis=0)
        return found
