"""The end of a time budget: too little is left for one more trial.

A new trial starts if half of the ended trials, including pruned ones, took no longer than the time
left: where two of three trials are pruned early, nearly all of the time can be used. A promoted
trial is compared with completed trials instead: the best paused trial needs the rest of a whole
training.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterable, Sequence

from tuner.domain.attempt import ENDED_WELL, Outcome
from tuner.domain.budget import N_TYPICAL, Budget, EndedUses, Spent, TrialUse, typical_use

#: Outcomes after which a trial may have a further attempt.
_MAY_GO_ON = frozenset({Outcome.PAUSED, Outcome.CANCELLED, Outcome.LOST})


class BudgetEnd:
    """Estimates how long trials take, and whether one more fits into the rest of the budget.

    Args:
        known: What trials that ended before this start have taken.
    """

    def __init__(self, known: EndedUses) -> None:
        self._completed = deque(known.completed, maxlen=N_TYPICAL)
        self._ended = deque(known.ended, maxlen=N_TYPICAL)
        #: Usage of trials that have had attempts and are not over.
        self._open: dict[int, TrialUse] = {}
        #: Device-seconds of attempts, whatever their outcome.
        self._attempts_s: deque[float] = deque(maxlen=N_TYPICAL)

    def ended(self, trial_id: int, outcome: Outcome | None, use: TrialUse) -> None:
        """Adds an attempt that has ended and released its devices."""
        before = self._open.pop(trial_id, TrialUse())
        whole = TrialUse(time_s=before.time_s + use.time_s, device_s=before.device_s + use.device_s)
        self._attempts_s.append(use.device_s)
        if outcome in ENDED_WELL:
            self._ended.append(whole)
        if outcome is Outcome.COMPLETED:
            self._completed.append(whole)
        elif outcome in _MAY_GO_ON:
            self._open[trial_id] = whole

    def too_little(
        self, budget: Budget, spent: Spent, held_s: Iterable[float], *, times: float = 1.0
    ) -> str | None:
        """Why a trial that starts now could not end in time, as text; None if it can.

        Args:
            budget: The study's budget.
            spent: What is spent of it.
            held_s: Device-seconds of each running attempt. What these still need is not available.
            times: Number of consecutive trials that must fit.
        """
        trials = list(self._ended)
        return self._too_little(budget, spent, held_s, typical_use(trials), times)

    def too_little_for(
        self, share: float, budget: Budget, spent: Spent, held_s: Iterable[float]
    ) -> str | None:
        """Like `too_little`, for a trial with this share of a whole training left."""
        trials = list(self._completed)
        return self._too_little(budget, spent, held_s, typical_use(trials), share)

    def _too_little(
        self,
        budget: Budget,
        spent: Spent,
        held_s: Iterable[float],
        trial: TrialUse | None,
        times: float,
    ) -> str | None:
        if trial is None or (budget.time_s is None and budget.device_hours is None):
            return None
        attempts_s = list(self._attempts_s) or [trial.device_s]
        promised_s = sum(_left_of(each, attempts_s) for each in held_s)
        rest = TrialUse(time_s=times * trial.time_s, device_s=times * trial.device_s)
        return budget.too_little(spent, rest, promised_device_s=promised_s)


def _left_of(held_s: float, attempts_s: Sequence[float]) -> float:
    """Expected device-seconds left: the mean of longer attempts, less its own so far."""
    longer = [each for each in attempts_s if each > held_s]
    return statistics.fmean(longer) - held_s if longer else 0.0
