"""The end of a budget of time: what is left of it is not enough for one more trial."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterable

from tuner.attempt import Outcome
from tuner.budget import N_TYPICAL, Budget, Spent, TrialUse, typical_use

#: A trial whose attempt has ended so may go on.
_MAY_GO_ON = frozenset({Outcome.PAUSED, Outcome.CANCELLED, Outcome.LOST})


class BudgetEnd:
    """Knows how long trials take, and whether one more fits into what is left.

    Args:
        known: What trials took that completed before this start, the oldest first.
    """

    def __init__(self, known: Iterable[TrialUse]) -> None:
        self._completed = deque(known, maxlen=N_TYPICAL)
        #: Of trials that have had attempts and are not over.
        self._open: dict[int, TrialUse] = {}
        #: Device-seconds of attempts, however they ended.
        self._attempts_s: deque[float] = deque(maxlen=N_TYPICAL)

    def ended(self, trial_id: int, outcome: Outcome | None, use: TrialUse) -> None:
        """An attempt is over and has given its devices back."""
        before = self._open.pop(trial_id, TrialUse())
        whole = TrialUse(time_s=before.time_s + use.time_s, device_s=before.device_s + use.device_s)
        self._attempts_s.append(use.device_s)
        if outcome is Outcome.COMPLETED:
            self._completed.append(whole)
        elif outcome in _MAY_GO_ON:
            self._open[trial_id] = whole

    def too_little(
        self, budget: Budget, spent: Spent, held_s: Iterable[float], share: float = 1.0
    ) -> str | None:
        """Why a trial that begins now could not finish, for people; None where it can.

        Args:
            budget: Of the study.
            spent: What it has spent.
            held_s: Device-seconds of each attempt that runs. What these take yet is not left.
            share: Of a whole training, which the trial has to do.
        """
        if budget.time_s is None and budget.device_hours is None:
            return None
        trial = typical_use(list(self._completed))
        if trial is None:
            return None
        mean_s = statistics.fmean(self._attempts_s) if self._attempts_s else trial.device_s
        promised_s = sum(max(0.0, mean_s - each) for each in held_s)
        rest = TrialUse(time_s=share * trial.time_s, device_s=share * trial.device_s)
        return budget.too_little(spent, rest, promised_device_s=promised_s)
