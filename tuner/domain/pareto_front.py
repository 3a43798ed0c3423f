"""Pareto fronts: the non-dominated vectors of losses. Pure.

A vector dominates another if it is not worse in any objective and better in one. Equal vectors do
not dominate each other. Smaller losses are better.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from optuna.study import StudyDirection

_Item = TypeVar("_Item")


class ParetoFront:
    """The Pareto front so far, updated without reading all trials.

    Args:
        directions: Direction of each objective.
    """

    def __init__(self, directions: Sequence[StudyDirection]) -> None:
        self._signs = [-1 if each is StudyDirection.MAXIMIZE else 1 for each in directions]
        self._losses: set[tuple[float, ...]] = set()

    def has(self, values: Iterable[float]) -> bool:
        """Whether a trial of these values is on the front."""
        return self._as_losses(values) in self._losses

    def add(self, values: Sequence[float]) -> bool:
        """Adds one trial's values; returns whether they are on the front."""
        new = self._as_losses(values)
        if any(dominates(old, new) for old in self._losses):
            return False
        self._losses = {old for old in self._losses if not dominates(new, old)} | {new}
        return True

    def _as_losses(self, values: Iterable[float]) -> tuple[float, ...]:
        return tuple(sign * value for sign, value in zip(self._signs, values, strict=True))


def dominates(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Whether one vector of losses is better than another one."""
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


def front_of(items: Iterable[_Item], losses: Callable[[_Item], tuple[float, ...]]) -> list[_Item]:
    """The non-dominated items, in order.

    Args:
        items: Items of any kind.
        losses: Returns the losses of an item.
    """
    front: list[_Item] = []
    for item in items:
        mine = losses(item)
        if not any(dominates(losses(each), mine) for each in front):
            front = [each for each in front if not dominates(mine, losses(each))]
            front.append(item)
    return front


def is_on_front(losses: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Which rows no other row dominates.

    Args:
        losses: [n, n_objectives].

    Returns:
        [n]
    """
    found = np.zeros(len(losses), dtype=np.bool_)
    # Sorted by the first objective: a dominated vector is dominated by one of those kept.
    order = np.lexsort(losses.T[::-1])
    kept = np.empty((0, losses.shape[1]))
    for at in order:
        row = losses[at]
        if not ((kept <= row).all(axis=1) & (kept < row).any(axis=1)).any():
            kept = np.vstack([kept, row])
            found[at] = True
    return found
