"""The steps at which trials are compared, and how each trial stands there. No I/O.

Rungs lie at `first`, `first * factor`, `first * factor ** 2` ... steps, and the best `1 / factor`
of those that came to one go on to the next: successive halving, asynchronous (ASHA; Li et al., "A
System for Massively Parallel Hyperparameter Tuning", MLSys 2020, arXiv:1810.05934, algorithm 2).
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
    #: Of each trial that came here, in order.
    came: Entries = field(default_factory=Entries)
    #: Those of them that wait here.
    paused: Entries = field(default_factory=Entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a trial stands at a rung."""

    rung: int
    loss: float
    #: How many are better.
    place: int
    n_came: int
    #: The loss of the last one that continues; NaN while none does.
    bar: float
    goes_on: bool


class RungTable:
    """Who came to which rung, with what, and who waits there.

    Args:
        first: The step of rung 0, from 1.
        factor: One in so many goes on, from 2; each rung lies at so many times the step before it.
    """

    def __init__(self, *, first: int, factor: int) -> None:
        self.first = first
        self.factor = factor
        #: The last step of a trial, once one has completed: no trial waits there.
        self.length: int | None = None
        #: Whether trials that do not pass a rung end there. The best then passes however few came,
        #: as no trial waits for others, and so do all that equal the last one that passes.
        self.is_final = False
        #: Nobody passes a rung before more than so many came there.
        self.n_bootstrap = 0
        #: Every trial passes these.
        self.open_rungs: Set[int] = frozenset()
        self._rungs: list[_Rung] = []
        self._losses = RungLosses()
        self._paused: dict[int, int] = {}

    def step_of(self, rung: int) -> int:
        return int(self.first * self.factor**rung)

    def rung_at(self, step: int) -> int:
        """The highest rung that a step has come to; -1 below the first."""
        rung = -1
        while self.step_of(rung + 1) <= step:
            rung += 1
        return rung

    def rung_of(self, number: int) -> int:
        """The highest rung that a trial came to; -1 for none."""
        return self._losses.n_rungs(number) - 1

    def loss_of(self, number: int, rung: int) -> float:
        """What a trial came to a rung with."""
        return self._losses.at(number, rung)

    def come(self, number: int, rung: int, loss: float) -> list[int]:
        """A trial has come to a rung; what it skipped on the way counts as come to with the same.

        Args:
            number: Of the trial.
            rung: Which.
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
        """How a trial stands among those that came to a rung, itself among them."""
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
        """Trials that wait and have earned to go on: from the highest rung, there the best first.

        Whoever takes one calls `unpause` before the next is asked for.
        """
        for index in reversed(range(len(self._rungs))):
            first = self._first_paused(index)
            if first and (self.is_end(index) or self._standing(index, first).goes_on):
                yield first[1]

    def is_end(self, rung: int) -> bool:
        """Whether a trial that came to a rung has nothing left to do but to end."""
        return self.length is not None and self.step_of(rung) >= self.length

    def leader(self) -> int | None:
        """Of the trials that wait at the highest rung the best; None where none waits."""
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
            goes_on=rung in self.open_rungs
            or place < n_going
            or (self.is_final and entry[0] <= bar),
        )


def known_length(max_resource: str | int, min_resource: int) -> int | None:
    """Steps of a whole trial, where a pruner's argument says it; None for `auto`.

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
