"""Rungs: the steps at which trials are compared, and their ranking there. No I/O.

Rungs lie at `first`, `first * factor`, `first * factor ** 2` ... steps, and the best `1 / factor`
of the trials that reached a rung continue to the next: asynchronous successive halving (ASHA; Li et
al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020, arXiv:1810.05934,
algorithm 2).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from functools import cache

from tuner.search.rungs.entries import Entries, Entry, RungLosses

RUNG_KEY = "completed_rung_"
"""Attribute of a trial, followed by a rung: its value there. Optuna's own pruner has it too."""


@cache
def rung_key(rung: int) -> str:
    """The attribute that holds a trial's value at a rung; one string for all trials."""
    return f"{RUNG_KEY}{rung}"


@dataclass(slots=True)
class _Rung:
    #: All trials that reached the rung, sorted.
    came: Entries = field(default_factory=Entries)
    #: Those that are paused here.
    paused: Entries = field(default_factory=Entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A trial's standing at a rung."""

    rung: int
    loss: float
    #: Number of better trials.
    place: int
    n_came: int
    #: The loss of the last trial that continues; NaN if none does.
    bar: float
    goes_on: bool
    #: Whether the trial was let continue before, and is judged once more.
    is_again: bool = False


class RungTable:
    """Losses of trials at rungs, and paused trials.

    Args:
        first: The step of rung 0, from 1.
        factor: One of this many trials continues, from 2; also the ratio of a rung's step to the
            step of the rung before.
    """

    def __init__(self, *, first: int, factor: int) -> None:
        self.first = first
        self.factor = factor
        #: The last step of a trial, once one has completed: no trial waits there.
        self.length: int | None = None
        #: Whether trials that do not pass a rung end there. Then the best passes however few have
        #: arrived, as no trial waits for others, and so do all that equal the last one that passes.
        self.is_final = False
        #: Whether, of those that equal the last one that passes, only so many pass that 1 in
        #: `factor` passes in all, if one is better and none is worse; and none without a number.
        #: Trials that learn nothing often have the same value, that of chance.
        self.limits_worst = False
        #: Trials that must reach a rung before any passes it.
        self.n_bootstrap = 0
        #: Every trial passes these.
        self.open_rungs: Set[int] = frozenset()
        self._rungs: list[_Rung] = []
        self._losses = RungLosses()
        self._paused: dict[int, int] = {}

    def step_of(self, rung: int) -> int:
        return int(self.first * self.factor**rung)

    def step_at(self, place: float) -> int:
        """The step of rung `place`; k + 0.5 lies between rung k and the next, as a ratio."""
        return math.ceil(self.first * math.pow(self.factor, place))

    def is_halfway(self, number: int, step: int) -> bool:
        """Whether a trial has trained half the way, as a ratio, from its rung to the next."""
        rung = self.rung_of(number)
        return rung >= 0 and self.step_at(rung + 0.5) <= step < self.step_of(rung + 1)

    def rung_at(self, step: int) -> int:
        """The highest rung at or below a step; -1 below the first."""
        rung = -1
        while self.step_of(rung + 1) <= step:
            rung += 1
        return rung

    def rung_of(self, number: int) -> int:
        """The highest rung that a trial reached; -1 for none."""
        return self._losses.n_rungs(number) - 1

    def loss_of(self, number: int, rung: int) -> float:
        """A trial's loss at a rung."""
        return self._losses.at(number, rung)

    def come(self, number: int, rung: int, loss: float) -> list[int]:
        """Records that a trial has reached a rung; skipped rungs count with the same loss.

        Args:
            number: The trial's number.
            rung: The rung.
            loss: The smaller the better, not NaN.

        Returns:
            The rungs that are new to it.
        """
        new = list(range(self._losses.n_rungs(number), rung + 1))
        for each in new:
            while len(self._rungs) <= each:
                self._rungs.append(_Rung())
            self._rungs[each].came.add((loss, number))
            self._losses.add(number, loss)
        return new

    def standing(self, number: int, rung: int) -> Standing:
        """A trial's standing among all that reached a rung."""
        entry = (self._losses.at(number, rung), number)
        return self._standing(rung, entry)

    def pause(self, number: int) -> None:
        """The trial waits at its highest rung."""
        if number not in self._paused and (rung := self.rung_of(number)) >= 0:
            self._paused[number] = rung
            self._rungs[rung].paused.add((self._losses.at(number, rung), number))

    def unpause(self, number: int) -> None:
        """The trial waits no more: it runs again, or is over."""
        rung = self._paused.pop(number, None)
        if rung is not None:
            self._rungs[rung].paused.remove((self._losses.at(number, rung), number))

    @property
    def paused(self) -> Set[int]:
        """Numbers of the trials that wait at a rung."""
        return self._paused.keys()

    def promotable(self) -> Iterator[int]:
        """Paused trials that may continue: from the highest rung down, the best of each.

        The caller must call `unpause` for a trial before it takes the next.
        """
        for index in reversed(range(len(self._rungs))):
            first = self._first_paused(index)
            if first and (self.is_end(index) or self._standing(index, first).goes_on):
                yield first[1]

    def is_end(self, rung: int) -> bool:
        """Whether a trial that reached a rung has trained to its end."""
        return self.length is not None and self.step_of(rung) >= self.length

    def leader(self) -> int | None:
        """The best paused trial of the highest rung; None if none is paused."""
        for index in reversed(range(len(self._rungs))):
            if first := self._first_paused(index):
                return first[1]
        return None

    def _first_paused(self, rung: int) -> Entry | None:
        """The best that waits at a rung."""
        return next(iter(self._rungs[rung].paused), None)

    def _n_going(self, n_came: int) -> int:
        if n_came <= self.n_bootstrap:
            return 0
        return max(int(self.is_final), n_came // self.factor)

    def _standing(self, rung: int, entry: Entry) -> Standing:
        came = self._rungs[rung].came
        place = came.place_of(entry)
        n_going = self._n_going(len(came))
        bar = came[n_going - 1][0] if n_going else math.nan
        return Standing(
            rung=rung,
            loss=entry[0],
            place=place,
            n_came=len(came),
            bar=bar,
            goes_on=rung in self.open_rungs or self._passes(rung, entry, place, n_going, bar),
        )

    def _passes(self, rung: int, entry: Entry, place: int, n_going: int, bar: float) -> bool:
        if not self.is_final:
            return place < n_going
        return entry[0] < bar or (entry[0] == bar and self._passes_as_equal(rung, entry, n_going))

    def _passes_as_equal(self, rung: int, entry: Entry, n_going: int) -> bool:
        """Whether a trial passes that equals the last one that does."""
        came, (loss, number) = self._rungs[rung].came, entry
        is_best, is_worst = loss == came[0][0], loss >= came.worst
        if not self.limits_worst or is_best or not is_worst:
            return True
        if math.isinf(loss):
            return False
        return _lot(number, rung) < (n_going - came.n_better(loss)) / came.n_equal(loss)


#: No sum of multiples of any of them is a whole number, so that lots of one rung say nothing of
#: those of another.
_IRRATIONAL = tuple(math.sqrt(prime) for prime in (5, 2, 3, 7, 11, 13, 17, 19, 23, 29))


def _lot(number: int, rung: int) -> float:
    """From 0 to 1, evenly spread over successive numbers."""
    return number * _IRRATIONAL[rung % len(_IRRATIONAL)] % 1.0


def known_length(max_resource: str | int, min_resource: int) -> int | None:
    """Steps of a whole trial, from a pruner's argument; None for `auto`.

    Raises:
        ValueError: If it is neither a number nor `auto`, or below the first rung.
    """
    if isinstance(max_resource, str):
        if max_resource != "auto":
            raise ValueError(f"max_resource is {max_resource!r}, but must be a number or auto.")
        return None
    if max_resource < min_resource:
        raise ValueError(
            f"max_resource is {max_resource}, but must be at least min_resource, which is "
            f"{min_resource}."
        )
    return max_resource
