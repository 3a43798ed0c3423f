"""The best of several objectives so far, without a look at all trials for each new one."""

from __future__ import annotations

from collections.abc import Sequence

from optuna.study import StudyDirection


class ParetoFront:
    """The values that none of the others beats in one objective without losing in another."""

    def __init__(self, directions: Sequence[StudyDirection]) -> None:
        self._signs = [-1 if each is StudyDirection.MAXIMIZE else 1 for each in directions]
        self._losses: set[tuple[float, ...]] = set()

    def add(self, values: Sequence[float]) -> bool:
        """Takes one trial's values; whether they are on the front."""
        new = tuple(sign * value for sign, value in zip(self._signs, values, strict=True))
        if any(_dominates(old, new) for old in self._losses):
            return False
        self._losses = {old for old in self._losses if not _dominates(new, old)} | {new}
        return True


def _dominates(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))
