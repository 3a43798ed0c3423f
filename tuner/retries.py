"""Which trial gets one more attempt after a bad end."""

from __future__ import annotations

from collections import Counter

from tuner.attempt import Attempt, Cause, Ending, Outcome

#: Of one trial, through no fault of its program; there may be something else behind so many.
_MAX_FREE = 3


class Retries:
    """Counts what failed attempts cost their trials.

    Args:
        n_allowed: How often a trial that failed by itself is tried again.
    """

    def __init__(self, n_allowed: int) -> None:
        self._n_allowed = n_allowed
        #: By trial: attempts whose end was none of the program's doing.
        self._n_free: Counter[int] = Counter()

    def grant(self, attempt: Attempt, ending: Ending, *, is_crowded_out: bool) -> bool:
        """Whether a failed attempt is followed by another one, which is counted then.

        Args:
            attempt: The one that failed.
            ending: How.
            is_crowded_out: Whether it got no memory because of others on its device.
        """
        if ending.outcome is Outcome.TIMED_OUT and ending.cause is not Cause.STALLED:
            return False  # It would run out of its time again.
        n_free = self._n_free[attempt.trial_id]
        is_free = is_crowded_out or ending.cause in (Cause.PORT_TAKEN, Cause.DEVICE_FAULT)
        if is_free and n_free < _MAX_FREE:
            self._n_free[attempt.trial_id] += 1
            return True
        return attempt.number - n_free <= self._n_allowed
