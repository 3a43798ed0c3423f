"""Chooses the trials that are trained to their end to check the ranking at the rungs. No I/O.

Trials that passed a rung all looked good there. Whether they end better than the others is known
only if some of the others are trained to their end as well: the witnesses, one of the first trials,
one of ten, of a hundred and so on, and two at a time while the evidence contradicts a rung.

Witnesses of the first trials cost most: nothing good is known yet, and each is a training that the
search lacks. So there is one, until a trial has relapsed, and then three, as many as can contradict
a rung.

Only quick trials are witnesses: durations differ by a factor of ten and more, and what a
witness takes is lost to the search if the rankings hold. Where one trial trains after the other,
durations are not compared, so that a study with a seed on one device repeats exactly.
"""

from __future__ import annotations

from collections import deque

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


class Witnesses:
    """The witnesses of one study."""

    def __init__(self) -> None:
        #: Whether a trial was worse later than at a rung that it passed.
        self.has_relapse = False
        self._n_trials = 0
        #: Those that run included.
        self._n = 0
        self._under_way: set[int] = set()
        #: By trial that has reached a rung and trains: its seconds per step until its first rung.
        self._step_s: dict[int, float | None] = {}
        self._newest_step_s: deque[float] = deque(maxlen=_N_TIMED)
        #: Whether two trials have trained at the same time.
        self._is_parallel = False

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

    def complete(self, number: int) -> None:
        """A trial has completed."""
        self._step_s.pop(number, None)
        self._under_way.discard(number)

    def leave(self, number: int) -> None:
        """A trial has paused, or ended without a result; if it was a witness, another one is."""
        self._n -= number in self._under_way
        self.complete(number)

    def add(self, number: int) -> None:
        """A trial that a rung would have ended is a witness."""
        self._n += number not in self._under_way
        self._under_way.add(number)

    def take(self, number: int, *, wants_more: bool) -> bool:
        """Whether a trial that a rung would end is a witness.

        Args:
            number: Its number.
            wants_more: Whether the evidence contradicts a rung.
        """
        if self._lacks(wants_more) and self._is_quick(number):
            self.add(number)
        return number in self._under_way

    def _lacks(self, wants_more: bool) -> bool:
        n_first = _N_FIRST_AFTER_RELAPSE if self.has_relapse else _N_FIRST
        n_further = max(self._n - n_first + 1, 0)
        is_due = self._n_trials >= _BASE**n_further
        return is_due or (wants_more and len(self._under_way) < _N_AT_ONCE)

    def _is_quick(self, number: int) -> bool:
        step_s = self._step_s.get(number)
        if step_s is None or not self._is_parallel:
            return True
        in_order = sorted(self._newest_step_s)
        return step_s <= in_order[(len(in_order) - 1) // _QUICKEST_OF]
