"""Chooses the trials that are trained to their end to check the ranking at the rungs. No I/O.

Trials that passed a rung all looked good there. Whether they end better than the others is known
only if some of the others are trained to their end as well: the witnesses, one of the first trials,
one of ten, of a hundred and so on, and two at a time while the evidence contradicts a rung.

Witnesses of the first trials cost most: nothing good is known yet, and each is a training that the
search lacks. So there is one, until a trial has relapsed, and then three, as many as can contradict
a rung. And a trial that passed the first rung because few had reached it, but is in the worse half
there by now, tells what a witness tells, and costs nothing: if one trains or has completed, it is
adopted before another trial is trained for this alone. While a rung is open none is, since whether
a trial is weak there says nothing.

Only quick trials are trained for this: durations differ by a factor of ten and more, and what a
witness takes is lost to the search if the rankings hold. Where one trial trains after the other,
durations are not compared, so that a study with a seed on one device repeats exactly.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

#: The first witnesses, without and with a trial that has relapsed.
_N_FIRST, _N_FIRST_AFTER_RELAPSE = 1, 3
#: Then one in this many trials, in the square of it, and so on.
_BASE = 10
#: Witnesses at the same time while a rung is contradicted. Trainings differ in length: with one, a
#: slow witness would be the only evidence for half of a study.
_N_AT_ONCE = 2
#: A witness is among the quickest 1 in this many, by seconds per step, of the newest trials.
_QUICKEST_OF = 4
_N_TIMED = 100
#: A trial is adopted if at least this fraction of the newest trials is better at the first rung.
_WEAK = 1 / 2
#: Newest completed trials that may be adopted.
_N_COMPLETED = 30


@dataclass(slots=True)
class _Training:
    """A trial that trains, from its first rung on."""

    #: At the first rung; None if it cannot be adopted.
    loss: float | None
    #: Seconds per step until its first rung.
    step_s: float | None


class Witnesses:
    """The witnesses of one study."""

    def __init__(self) -> None:
        #: Whether a trial was worse later than at a rung that it passed.
        self.has_relapse = False
        self._n_trials = 0
        #: Trials that a rung would have ended, those that run included.
        self._n_spared = 0
        self._n_adopted = 0
        self._under_way: set[int] = set()
        #: Those under way that were adopted.
        self._adopted: set[int] = set()
        self._training: dict[int, _Training] = {}
        #: Numbers and losses at the first rung, without witnesses.
        self._completed: deque[tuple[int, float]] = deque(maxlen=_N_COMPLETED)
        self._newest_step_s: deque[float] = deque(maxlen=_N_TIMED)
        #: Whether two trials have trained at the same time.
        self._is_parallel = False

    @property
    def n_adopted(self) -> int:
        """Trials that are witnesses and were not trained for this alone."""
        return self._n_adopted

    def restore(self, n_adopted: int) -> None:
        """Takes over what another dispatcher, or an earlier start, has adopted."""
        self._n_adopted = max(self._n_adopted, n_adopted)

    def begin(self, number: int, loss: float, step_s: float | None) -> None:
        """A trial has reached its first rung.

        Args:
            number: Its number.
            loss: Its loss there.
            step_s: Seconds per step so far, its start included; None if unknown.
        """
        self._n_trials += 1
        self._training[number] = _Training(loss if math.isfinite(loss) else None, step_s)
        self._is_parallel = self._is_parallel or len(self._training) > 1
        if step_s is not None:
            self._newest_step_s.append(step_s)

    def complete(self, number: int, last: float) -> None:
        """A trial has completed.

        Args:
            number: Its number.
            last: Its loss at its end.
        """
        training = self._training.get(number)
        loss = None if training is None else training.loss
        if loss is not None and math.isfinite(last) and number not in self._under_way:
            self._completed.append((number, loss))
        self._forget(number)

    def leave(self, number: int) -> None:
        """A trial has paused, or ended without a result; if it was a witness, another one is."""
        if number in self._adopted:
            self._n_adopted -= 1
        elif number in self._under_way:
            self._n_spared -= 1
        self._forget(number)

    def _forget(self, number: int) -> None:
        self._training.pop(number, None)
        self._under_way.discard(number)
        self._adopted.discard(number)

    def add(self, number: int) -> None:
        """A trial that a rung would have ended is a witness."""
        if number in self._under_way and number not in self._adopted:
            return
        self._n_spared += 1
        self._n_adopted -= number in self._adopted
        self._adopted.discard(number)
        self._under_way.add(number)

    def take(
        self, number: int, at_first_rung: Collection[float], after: int | None, *, wants_more: bool
    ) -> bool:
        """Whether a trial that a rung would end is a witness.

        Args:
            number: Its number.
            at_first_rung: Losses of the newest trials at the first rung.
            after: Trials after this one may be adopted; None if none may.
            wants_more: Whether the evidence contradicts a rung.
        """
        if number not in self._under_way and self._lacks(wants_more) and self._is_quick(number):
            if after is not None:
                self._adopt(number, sorted(at_first_rung), after, wants_more=wants_more)
            if self._lacks(wants_more):
                self.add(number)
        if number in self._under_way:
            self.add(number)
            return True
        # It is about to end.
        if number in self._training:
            self._training[number].loss = None
        return False

    def _lacks(self, wants_more: bool) -> bool:
        return self._is_due or (wants_more and len(self._under_way) < _N_AT_ONCE)

    @property
    def _is_due(self) -> bool:
        n_first = _N_FIRST_AFTER_RELAPSE if self.has_relapse else _N_FIRST
        n_further = max(self._n_spared + self._n_adopted - n_first + 1, 0)
        return bool(self._n_trials >= _BASE**n_further)

    def _adopt(self, ending: int, in_order: list[float], after: int, *, wants_more: bool) -> None:
        """Adopts weak trials as long as a witness is missing."""

        def is_weak(number: int, loss: float) -> bool:
            return number > after and bisect_left(in_order, loss) >= _WEAK * len(in_order)

        for each in [*self._completed]:
            # What a completed one says is known: a contradiction asks for more.
            if self._is_due and is_weak(*each):
                self._completed.remove(each)
                self._n_adopted += 1
        for number, training in self._training.items():
            is_free = number != ending and number not in self._under_way
            if not is_free or training.loss is None or not is_weak(number, training.loss):
                continue
            is_known = training.step_s is not None or not self._is_parallel
            if self._lacks(wants_more) and is_known and self._is_quick(number):
                self._n_adopted += 1
                self._adopted.add(number)
                self._under_way.add(number)

    def _is_quick(self, number: int) -> bool:
        training = self._training.get(number)
        if training is None or training.step_s is None or not self._is_parallel:
            return True
        in_order = sorted(self._newest_step_s)
        return training.step_s <= in_order[(len(in_order) - 1) // _QUICKEST_OF]
