"""Which trial gets one more attempt after a bad end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tuner.domain.attempt import Attempt, Cause, Ending, Outcome

#: Of one trial, through no fault of its program; there may be something else behind so many.
_MAX_FREE = 3
#: They say nothing of the program.
FREE_CAUSES = (Cause.PORT_TAKEN, Cause.DEVICE_FAULT)


class Retries:
    """Counts what failed attempts cost their trials.

    Args:
        n_allowed: How often a trial that failed by itself is tried again.
    """

    def __init__(self, n_allowed: int) -> None:
        self._n_allowed = n_allowed
        #: By trial: attempts whose end was none of the program's doing.
        self._n_free: Counter[int] = Counter()
        #: By trial: attempts that failed by themselves, also before this start.
        self._n_failed: Counter[int] = Counter()
        #: Trials that ran out of memory, also before this start.
        self._ran_out: set[int] = set()

    def recall(self, trial_id: int, endings: Sequence[Ending]) -> None:
        """Takes in how a trial has ended before. What was lost or cancelled costs it nothing.

        Args:
            trial_id: One that waited.
            endings: Of its attempts, by whatever dispatcher.
        """
        n_failed = sum(map(_is_counted, endings))
        # What happened last may not be written yet.
        self._n_failed[trial_id] = max(self._n_failed[trial_id], n_failed)
        if any(each.outcome is Outcome.OUT_OF_MEMORY for each in endings):
            self._ran_out.add(trial_id)

    def grant(self, attempt: Attempt, ending: Ending, *, is_ours: bool = False) -> bool:
        """Whether a failed attempt is followed by another one, which is counted then.

        Args:
            attempt: The one that failed.
            ending: How.
            is_ours: Whether that says nothing of the trial: it is tried until it has ended.
        """
        if is_ours or _is_second_start(ending):
            return True
        if ending.outcome is Outcome.TIMED_OUT and ending.cause is not Cause.STALLED:
            return False  # It would run out of its time again.
        if ending.outcome is Outcome.OUT_OF_MEMORY:
            return self._grant_room(attempt.trial_id)
        n_free = self._n_free[attempt.trial_id]
        # Somebody told it to end, or it did so itself.
        is_free = ending.cause in FREE_CAUSES or ending.outcome is Outcome.CANCELLED
        if is_free and n_free < _MAX_FREE:
            self._n_free[attempt.trial_id] += 1
            return True
        self._n_failed[attempt.trial_id] += 1
        return self._n_failed[attempt.trial_id] <= self._n_allowed

    def needs_room(self, trial_id: int) -> bool:
        """Whether a trial shares its devices with nobody: it ran out of memory before."""
        return trial_id in self._ran_out

    def _grant_room(self, trial_id: int) -> bool:
        """Once it may have been for others' sake; with devices of its own it was not."""
        if trial_id in self._ran_out:
            return False
        self._ran_out.add(trial_id)
        return True


def _is_second_start(ending: Ending) -> bool:
    """Whether the attempt had nothing left to do; a trial starts without its checkpoint once."""
    return ending.outcome is Outcome.CANCELLED and ending.cause is Cause.NO_RESULT


def _is_counted(ending: Ending) -> bool:
    is_memory = ending.outcome is Outcome.OUT_OF_MEMORY
    return ending.outcome.is_failure and not is_memory and ending.cause not in FREE_CAUSES
