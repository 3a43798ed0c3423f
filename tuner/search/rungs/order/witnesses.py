"""Chooses the trials that are trained on to check the ranking at the rungs. No I/O.

Trials that passed a rung all looked good there. Whether they end better than the others is known
only if some of the others are trained on as well: the witnesses, one of the first trials, one of
ten, of a hundred and so on, and two at a time while the evidence contradicts a rung.

Witnesses of the first trials cost most: nothing good is known yet, and each is time that the search
lacks. So a witness is trained to the next rung only, where a ranking that is reversed or random
until there shows, and ends halfway to it if all that is known agrees. One that is reversed later is
found by what costs nothing: the trials that passed the rungs relapse. Where a third of them do,
witnesses are trained to their end, and there are three of them, as many as can contradict a rung.

Where many trials train at the same time, one witness costs less, and one training of all of them is
lost before the first relapse. So of the first trials, one in eight that train at the same time is a
witness that is trained to its end, in their order of arrival.

Only quick trials are witnesses later: durations differ by a factor of ten and more, and what a
witness takes is lost to the search if the rankings hold. Where one trial trains after the other,
durations are not compared, so that a study with a seed on one device repeats exactly.
"""

from __future__ import annotations

import math
from collections import Counter, deque

#: One witness in this many trials, in the square of it, and so on.
_BASE = 10
#: Of the trials that passed a rung, the fraction that must have relapsed. Where a ranking says
#: nothing, half of the best third do; where it is reversed, all.
_RELAPSED = 1 / 3
#: Witnesses that are trained to their end then.
_N_TO_END = 3
#: Of the first trials, one of this many that train at the same time is trained to its end, so that
#: they take an eighth of all devices at most.
_FIRST_OF = 8
#: Witnesses at the same time while a rung is contradicted. Trainings differ in length: with one, a
#: slow witness would be the only evidence for half of a study.
_N_AT_ONCE = 2
#: A witness is among the quickest 1 in this many, by seconds per step, of the newest trials.
_QUICKEST_OF = 4
_N_TIMED = 100


class Witnesses:
    """The witnesses of one study.

    Attributes:
        n_first: Witnesses of the first trials that are trained to their end.
    """

    def __init__(self) -> None:
        self._n_trials = 0
        #: Those that left after they were compared once more, and all others but those that left:
        #: the ones that train included.
        self._n_left = self._n = 0
        #: By trial that is or was a witness: the rung at which it was weak.
        self._weak_at: dict[int, int] = {}
        #: Of those: they train, they were compared later, they are trained to their end.
        self._under_way: set[int] = set()
        self._compared: set[int] = set()
        self._to_end: set[int] = set()
        #: By what is later than a rung: trials that were compared with a rung that they passed, and
        #: how many of them have relapsed.
        self._n_compared: Counter[float] = Counter()
        self._n_relapsed: Counter[float] = Counter()
        #: By trial that has reached a rung and trains: its seconds per step until its first rung.
        self._step_s: dict[int, float | None] = {}
        self._newest_step_s: deque[float] = deque(maxlen=_N_TIMED)
        #: Whether two trials have trained at the same time.
        self._is_parallel = False
        self.n_first = 0

    def begin(self, number: int, step_s: float | None) -> None:
        """A trial has reached its first rung.

        Args:
            number: Its number.
            step_s: Seconds per step so far, its start included; None if unknown.
        """
        self._n_trials += 1
        self._step_s[number] = step_s
        self._is_parallel = self._is_parallel or len(self._step_s) > 1
        if step_s is not None:
            self._newest_step_s.append(step_s)

    def compare(self, number: int, later: float, *, has_relapsed: bool | None) -> None:
        """A trial is compared with the rungs that it passed.

        Args:
            number: Its number.
            later: Where it is now: a rung, halfway to the next, or the end.
            has_relapsed: Whether it is worse than at one of them; None if too few have reached
                them.
        """
        if later > self._weak_at.get(number, math.inf):
            self._compared.add(number)
        elif has_relapsed is not None:
            self._n_compared[later] += 1
            self._n_relapsed[later] += has_relapsed

    def complete(self, number: int) -> None:
        """A trial has completed."""
        self._step_s.pop(number, None)
        self._under_way.discard(number)

    def leave(self, number: int) -> None:
        """A trial has paused, was pruned, or ended without a result.

        If it was a witness and was not compared later, another one is.
        """
        if number in self._under_way:
            self._n -= 1
            self._n_left += number in self._compared
        self.complete(number)

    def add(self, number: int, rung: int) -> None:
        """A trial that a rung would have ended is a witness; each is one once."""
        if number not in self._weak_at:
            self._n += 1
            self._weak_at[number] = rung
            self._under_way.add(number)

    def take(self, number: int, rung: int, *, n_running: int, is_contradicted: bool) -> bool:
        """Whether a trial that a rung would end is trained on.

        Args:
            number: Its number.
            rung: The rung.
            n_running: Trials that train at the moment, on all machines.
            is_contradicted: Whether the evidence contradicts a rung.
        """
        self.n_first = max(self.n_first, n_running // _FIRST_OF)
        is_one_of_first = self._n_so_far < self.n_first
        if is_one_of_first or (self._lacks(is_contradicted) and self._is_quick(number)):
            self.add(number, rung)
        if number not in self._under_way:
            return False
        if is_contradicted or self.have_relapsed or self._n_so_far <= self.n_first:
            self._to_end.add(number)
        return number in self._to_end or rung <= self._weak_at[number]

    def is_to_end(self, number: int, *, n_running: int) -> bool:
        """Whether a trial is a witness that is trained to its end.

        Args:
            number: Its number.
            n_running: Trials that train at the moment, on all machines.
        """
        self.n_first = max(self.n_first, n_running // _FIRST_OF)
        is_one_of_first = number in self._weak_at and self._n_so_far <= self.n_first
        return number in self._to_end or is_one_of_first

    @property
    def _n_so_far(self) -> int:
        return self._n_left + self._n

    @property
    def have_relapsed(self) -> bool:
        """Whether a third of the trials that were compared at a later place have relapsed there."""
        # Where a ranking is reversed until late, trials relapse only after this.
        return any(
            n_relapsed and n_relapsed >= _RELAPSED * self._n_compared[later]
            for later, n_relapsed in self._n_relapsed.items()
        )

    def _lacks(self, is_contradicted: bool) -> bool:
        n_more = self._n_so_far - max(self.n_first - 1, 0)
        is_due = self._n_trials >= _BASE**n_more
        lacks_ends = self.have_relapsed and self._n < _N_TO_END
        return is_due or lacks_ends or (is_contradicted and len(self._under_way) < _N_AT_ONCE)

    def _is_quick(self, number: int) -> bool:
        step_s = self._step_s.get(number)
        if step_s is None or not self._is_parallel:
            return True
        in_order = sorted(self._newest_step_s)
        return step_s <= in_order[(len(in_order) - 1) // _QUICKEST_OF]
