"""Losses of trials, in order and by number, in arrays: studies have up to a million. No I/O."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias, overload

Entry: TypeAlias = tuple[float, int]
"""Loss, the smaller the better, and number of a trial."""


class Entries(Sequence[Entry]):
    """Entries in order, the best first, in 16 bytes each."""

    __slots__ = ("_losses", "_numbers")

    def __init__(self) -> None:
        self._losses = array("d")
        self._numbers = array("q")

    def add(self, entry: Entry) -> None:
        """Puts an entry into its place."""
        place = self.place_of(entry)
        self._losses.insert(place, entry[0])
        self._numbers.insert(place, entry[1])

    def remove(self, entry: Entry) -> None:
        """Takes an entry out, which is there."""
        place = self.place_of(entry)
        del self._losses[place], self._numbers[place]

    def place_of(self, entry: Entry) -> int:
        """Number of entries before one."""
        loss, number = entry
        begin = bisect_left(self._losses, loss)
        if begin == len(self) or self._losses[begin] != loss:
            return begin
        end = bisect_right(self._losses, loss, begin)
        return bisect_left(self._numbers, number, begin, end)

    @property
    def worst(self) -> float:
        """The largest loss below infinity; infinite if there is none."""
        n_finite = self.n_better(math.inf)
        return self._losses[n_finite - 1] if n_finite else math.inf

    def n_better(self, loss: float) -> int:
        """Number of entries with a smaller loss."""
        return bisect_left(self._losses, loss)

    def n_equal(self, loss: float) -> int:
        """Number of entries with this loss."""
        return bisect_right(self._losses, loss) - bisect_left(self._losses, loss)

    @overload
    def __getitem__(self, place: int) -> Entry: ...

    @overload
    def __getitem__(self, place: slice) -> list[Entry]: ...

    def __getitem__(self, place: int | slice) -> Entry | list[Entry]:
        if isinstance(place, slice):
            return list(zip(self._losses[place], self._numbers[place], strict=True))
        return self._losses[place], self._numbers[place]

    def __iter__(self) -> Iterator[Entry]:
        return zip(self._losses, self._numbers, strict=True)

    def __len__(self) -> int:
        return len(self._losses)


class RungLosses(Mapping[int, tuple[float, ...]]):
    """By trial number: its loss at each rung that it reached. None is NaN."""

    def __init__(self) -> None:
        #: By rung, then by trial number; NaN if the trial did not reach it.
        self._rungs: list[array[float]] = []
        self._n_trials = 0
        #: At all rungs.
        self.n_losses = 0

    def add(self, number: int, loss: float) -> None:
        """Records that a trial has reached its next rung."""
        rung = self.n_rungs(number)
        if rung == len(self._rungs):
            self._rungs.append(array("d"))
        losses = self._rungs[rung]
        missing = number + 1 - len(losses)
        if missing > 0:
            losses.extend([math.nan] * missing)
        losses[number] = loss
        self._n_trials += rung == 0
        self.n_losses += 1

    def n_rungs(self, number: int) -> int:
        """Number of rungs that a trial reached."""
        for rung, losses in enumerate(self._rungs):
            if number >= len(losses) or math.isnan(losses[number]):
                return rung
        return len(self._rungs)

    def at(self, number: int, rung: int) -> float:
        """A trial's loss at a rung that it reached."""
        return self._rungs[rung][number]

    def __getitem__(self, number: int) -> tuple[float, ...]:
        n_rungs = self.n_rungs(number)
        if not n_rungs:
            raise KeyError(number)
        return tuple(losses[number] for losses in self._rungs[:n_rungs])

    def __iter__(self) -> Iterator[int]:
        first: Sequence[float] = self._rungs[0] if self._rungs else ()
        return (number for number, loss in enumerate(first) if not math.isnan(loss))

    def __len__(self) -> int:
        return self._n_trials
