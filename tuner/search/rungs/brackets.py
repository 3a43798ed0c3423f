"""Rungs in brackets; trials are compared only within their bracket. No I/O.

ASHA has one bracket. Hyperband has several, which begin at later and later steps, so that a slow
starter is not lost in all of them (Li et al., JMLR 18, 2018, arXiv:1603.06560).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Set

from tuner.search.rungs.table import RungTable

#: First step of a bracket without rungs.
NEVER = 0
_UNKNOWN = -1


class Brackets:
    """Assigns trials to brackets, and finds paused trials in all brackets.

    Args:
        new_table: Makes the table of a bracket from the step of its first rung.
    """

    def __init__(self, new_table: Callable[[int], RungTable]) -> None:
        self._new_table = new_table
        self._tables: dict[int, RungTable] = {}
        #: By trial number: where its bracket begins, or that it was not put into one.
        self._first = array("q")
        self._paused: dict[int, RungTable] = {}
        self._length: int | None = None

    @property
    def length(self) -> int | None:
        """The last step of a whole trial, once that is known: no trial waits there."""
        return self._length

    @length.setter
    def length(self, length: int | None) -> None:
        self._length = length
        for table in self._tables.values():
            table.length = length

    @property
    def tables(self) -> Collection[RungTable]:
        """Tables of the brackets that have trials."""
        return self._tables.values()

    def put(self, number: int, first: int) -> None:
        """Assigns a trial permanently to the bracket with this first step; `NEVER` for no rungs."""
        missing = number + 1 - len(self._first)
        if missing > 0:
            self._first.extend([_UNKNOWN] * missing)
        if self._first[number] == _UNKNOWN:
            self._first[number] = first

    def __contains__(self, number: int) -> bool:
        """Whether a trial has been assigned, including to `NEVER`."""
        return self._first_of(number) != _UNKNOWN

    def table_of(self, number: int) -> RungTable | None:
        """The rungs of a trial; None if it has none."""
        first = self._first_of(number)
        if first in (NEVER, _UNKNOWN):
            return None
        if first not in self._tables:
            self._tables[first] = self._new_table(first)
            self._tables[first].length = self._length
        return self._tables[first]

    def _first_of(self, number: int) -> int:
        return self._first[number] if number < len(self._first) else _UNKNOWN

    def pause(self, number: int) -> None:
        """Pauses a trial at its highest rung, if it has reached one."""
        self.unpause(number)  # Others may have let it continue, from where it waited before.
        table = self.table_of(number)
        if table is not None and table.rung_of(number) >= 0:
            table.pause(number)
            self._paused[number] = table

    def unpause(self, number: int) -> None:
        """The trial waits no more: it runs again, or is over."""
        if (table := self._paused.pop(number, None)) is not None:
            table.unpause(number)

    @property
    def paused(self) -> Set[int]:
        """Numbers of the trials that wait at a rung."""
        return self._paused.keys()

    def promotable(self) -> int | None:
        """The promotable trial at the latest step; if equal, of the first bracket."""
        found = []
        for first in sorted(self._tables):
            table = self._tables[first]
            if (number := next(table.promotable(), None)) is not None:
                found.append((table.step_of(table.rung_of(number)), number))
        return max(found, key=lambda each: each[0])[1] if found else None

    def leader(self) -> int | None:
        """The best paused trial at the latest step; None if none is paused."""
        found = []
        for table in self._tables.values():
            if (number := table.leader()) is not None:
                rung = table.rung_of(number)
                found.append((-table.step_of(rung), table.loss_of(number, rung), number))
        return min(found)[2] if found else None

    @property
    def share_left_of_leader(self) -> float | None:
        """Fraction of a whole training that the leader has left.

        None if no trial is paused, or if the length of a training is unknown.
        """
        number = self.leader()
        if number is None or not self._length:
            return None
        table = self._paused[number]
        return max(0.0, 1.0 - table.step_of(table.rung_of(number)) / self._length)
