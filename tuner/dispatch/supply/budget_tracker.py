"""Tracks what the study has spent, and whether one more trial fits into the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from tuner.dispatch.attempts.live_attempt import LiveAttempt
from tuner.dispatch.supply.budget_end import BudgetEnd
from tuner.dispatch.upkeep.device_usage import Usage
from tuner.domain.attempt import AttemptId
from tuner.domain.budget import Budget, Spent, TrialUse
from tuner.host.clock import Instant
from tuner.search.study import StudySearch
from tuner.store.records.recorder import Recorder


class BudgetTracker:
    """Adds up the spending of all starts and dispatchers of the study.

    Args:
        budget: The study's budget, which a command may change.
        search: The study's trials.
        recorder: Has the spending of earlier starts and other dispatchers.
        usage: Has the energy use of this dispatcher's devices.
        live: The attempts that hold devices now.
        started_at: When this start began.
        are_others_here: Whether other dispatchers work on the study.
        say: Shows a message to the user.
    """

    def __init__(
        self,
        budget: Budget,
        *,
        search: StudySearch,
        recorder: Recorder,
        usage: Usage,
        live: Mapping[AttemptId, LiveAttempt],
        started_at: Instant,
        are_others_here: Callable[[], bool],
        say: Callable[[str], None],
    ) -> None:
        self.budget = budget
        #: Device-seconds held by ended attempts of this start; each device counts separately.
        self.device_s = 0.0
        self._search = search
        self._recorder = recorder
        self._usage = usage
        self._live = live
        #: Start of the time that counts: the wait for the first device does not.
        self._began_s: float | None = None
        self._started_at = started_at
        self._are_others_here = are_others_here
        self._say = say
        self._closing = BudgetEnd(recorder.past.trials)
        self._is_closing_said = False

    def ended(self, live: LiveAttempt, now: Instant) -> None:
        """Adds an attempt that has ended and released its devices."""
        if self._began_s is None:
            self._began_s = live.leased_at_s
        use = TrialUse(time_s=now.monotonic_s - live.leased_at_s, device_s=live.held_s(now))
        self.device_s += use.device_s
        self._closing.ended(live.attempt.trial_id, live.outcome, use)

    def spent(self, now: Instant) -> Spent:
        """What is spent by now, including running attempts."""
        held_s = 0.0 if self.budget.device_hours is None else sum(self._held_s(now))
        return Spent(
            trials=self._search.counts.n_begun,
            time_s=self._recorder.past.time_s + self._worked_s(now),
            device_s=self._recorder.fleet.device_s_elsewhere + self.device_s + held_s,
            energy_kwh=self._energy_kwh(),
        )

    def _worked_s(self, now: Instant) -> float:
        if self._began_s is None:
            # While others work, the study's time passes.
            begins = [self._started_at.monotonic_s] if self._are_others_here() else []
            begins += (live.leased_at_s for live in self._live.values())
            self._began_s = min(begins, default=None)
        return 0.0 if self._began_s is None else now.monotonic_s - self._began_s

    def why_no_more(self, now: Instant, *, is_new_trial: bool) -> str | None:
        """Why no trial may start, as text; None if one may.

        Args:
            now: The current time.
            is_new_trial: False for a further attempt of a trial that has started.
        """
        spent = self.spent(now)
        reached = self.budget.reached(spent, is_new_trial=is_new_trial)
        if reached is not None or not is_new_trial:
            return reached
        reason = self._closing.too_little(self.budget, spent, self._held_s(now))
        if reason and self._live and not self._is_closing_said:
            self._is_closing_said = True
            self._say(f"No new trial starts: {reason}. Running trials continue.")
        return reason

    def has_room_for_new(self, now: Instant, *, times: float = 1.0) -> bool:
        """Whether the rest of the budget fits `times` new trials, one after the other."""
        held_s = self._held_s(now)
        return not self._closing.too_little(self.budget, self.spent(now), held_s, times=times)

    def leader_fits(self, now: Instant) -> bool:
        """Whether the rest, too little for a new trial, fits the best paused trial."""
        share = self._search.scheduler.leader_share_left
        spent = self.spent(now)
        if share is None or self.budget.reached(spent, is_new_trial=False):
            return False
        if self.has_room_for_new(now):
            return False
        return not self._closing.too_little_for(share, self.budget, spent, self._held_s(now))

    def _held_s(self, now: Instant) -> Iterator[float]:
        return (live.held_s(now) for live in self._live.values())

    def _energy_kwh(self) -> float:
        if self.budget.energy_kwh is None:
            return 0.0
        return self._recorder.fleet.energy_kwh_elsewhere + self._usage.energy_kwh
