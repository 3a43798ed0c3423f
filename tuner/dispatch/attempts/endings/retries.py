"""Decides which trial is retried after a failed attempt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tuner.domain.attempt import Attempt, Cause, Ending, Outcome

#: Free retries per trial for failures that the program did not cause; more suggest another cause.
_MAX_FREE = 3
#: Causes outside the program.
FREE_CAUSES = (Cause.PORT_TAKEN, Cause.DEVICE_FAULT)


class Retries:
    """Counts failed attempts against the retries of their trials.

    Args:
        n_allowed: Retries of a trial that failed by itself.
    """

    def __init__(self, n_allowed: int) -> None:
        self._n_allowed = n_allowed
        #: By trial: attempts that ended for a cause outside the program.
        self._n_free: Counter[int] = Counter()
        #: By trial: attempts that failed by themselves, including those before this start.
        self._n_failed: Counter[int] = Counter()
        #: Trials that ran out of memory, including those before this start.
        self._ran_out: set[int] = set()

    def recall(self, trial_id: int, endings: Sequence[Ending]) -> None:
        """Counts the earlier endings of a trial. Lost and cancelled attempts cost no retry.

        Args:
            trial_id: A trial in the queue.
            endings: Endings of its attempts, by any dispatcher.
        """
        n_failed = sum(map(_is_counted, endings))
        # What happened last may not be written yet.
        self._n_failed[trial_id] = max(self._n_failed[trial_id], n_failed)
        if any(each.outcome is Outcome.OUT_OF_MEMORY for each in endings):
            self._ran_out.add(trial_id)

    def grant(self, attempt: Attempt, ending: Ending, *, is_ours: bool = False) -> bool:
        """Whether a failed attempt is retried; counts the retry.

        Args:
            attempt: The failed attempt.
            ending: Its ending.
            is_ours: Whether the tuner or the machine caused the failure: such retries are
                unlimited.
        """
        if is_ours or _is_second_start(ending):
            return True
        if ending.outcome is Outcome.TIMED_OUT and ending.cause is not Cause.STALLED:
            return False  # It would run out of its time again.
        if ending.outcome is Outcome.OUT_OF_MEMORY:
            return self._grant_room(attempt.trial_id)
        n_free = self._n_free[attempt.trial_id]
        # It was ended from outside, or by itself.
        is_free = ending.cause in FREE_CAUSES or ending.outcome is Outcome.CANCELLED
        if is_free and n_free < _MAX_FREE:
            self._n_free[attempt.trial_id] += 1
            return True
        self._n_failed[attempt.trial_id] += 1
        return self._n_failed[attempt.trial_id] <= self._n_allowed

    def needs_room(self, trial_id: int) -> bool:
        """Whether a trial needs devices of its own because it ran out of memory before."""
        return trial_id in self._ran_out

    def _grant_room(self, trial_id: int) -> bool:
        """Allows one retry on devices of its own: other trials may have used the memory."""
        if trial_id in self._ran_out:
            return False
        self._ran_out.add(trial_id)
        return True


def _is_second_start(ending: Ending) -> bool:
    """Whether the attempt had nothing left to do; a trial restarts without its checkpoint once."""
    return ending.outcome is Outcome.CANCELLED and ending.cause is Cause.NO_RESULT


def _is_counted(ending: Ending) -> bool:
    is_memory = ending.outcome is Outcome.OUT_OF_MEMORY
    return ending.outcome.is_failure and not is_memory and ending.cause not in FREE_CAUSES
