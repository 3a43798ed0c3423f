"""Leases free devices to trials and launches their attempts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tuner.dispatch.attempts.attempt_table import AttemptTable
from tuner.dispatch.attempts.launching import AttemptStart
from tuner.dispatch.attempts.widening import Widener
from tuner.dispatch.early_stop import EarlyStop
from tuner.dispatch.notice_queue import NoticeQueue
from tuner.dispatch.notices import Started
from tuner.dispatch.study_end import StudyEnd
from tuner.dispatch.supply.budget_tracker import BudgetTracker
from tuner.dispatch.supply.gathering_note import GatheringNote
from tuner.dispatch.supply.grants import Candidate, Grant
from tuner.dispatch.supply.leasing import Leasing
from tuner.dispatch.supply.stranded_trials import StrandedTrials
from tuner.dispatch.supply.trial_source import TrialSource
from tuner.dispatch.upkeep.commands import Orders
from tuner.dispatch.upkeep.device_usage import Usage
from tuner.dispatch.upkeep.disk_space import Room
from tuner.host.clock import Clock, Instant
from tuner.search.study import StudySearch

#: More trials than any machine has devices.
_MANY = 4096


class DeviceFilling:
    """Starts trials on free devices.

    Args:
        search: The study.
        leasing: The devices, and the queue of trials for them.
        asking: Supplies the next trial.
        launching: Launches attempts.
        widening: Restarts attempts on more devices; None if `widen` is off.
        stranding: Names trials that do not fit here.
        spending: The budget.
        orders: Whether the study is paused.
        room: Whether the disk has room.
        usage: Is notified of device use.
        telling: Shows notices to the user.
        end: Whether trials may start.
        early_stop: Ends attempts that could not be launched.
        clock: The time.
        attempts: The attempts that hold devices.
    """

    def __init__(
        self,
        *,
        search: StudySearch,
        leasing: Leasing,
        asking: TrialSource,
        launching: AttemptStart,
        widening: Widener | None,
        stranding: StrandedTrials,
        spending: BudgetTracker,
        orders: Orders,
        room: Room,
        usage: Usage,
        telling: NoticeQueue,
        end: StudyEnd,
        early_stop: EarlyStop,
        clock: Clock,
        attempts: AttemptTable,
    ) -> None:
        self._search = search
        self._leasing = leasing
        self._asking = asking
        self._launching = launching
        self._widening = widening
        self._stranding = stranding
        self._spending = spending
        self._orders = orders
        self._room = room
        self._usage = usage
        self._telling = telling
        self._end = end
        self._early_stop = early_stop
        self._clock = clock
        self._attempts = attempts
        self._gathering = GatheringNote(telling.say)

    def fill(self, now: Instant, write: Callable[[Instant], None]) -> None:
        """Starts all trials that can start now.

        Args:
            now: The current time.
            write: Writes all records; an attempt is launched only after its record is written.

        Raises:
            StoreError: If the database cannot be used.
        """
        self._leasing.look(now.monotonic_s)
        self._grant_devices(now)
        if self._widening is not None and self._may_start(now):
            if self._leasing.settle_for_less():
                self._grant_devices(now)
            if self._widening.is_due(now) and self._has_nothing_to_start(now):
                spent = self._spending.spent(now)
                self._widening.poll(now, self._attempts.values(), self._spending.budget, spent)
        self._launch_all(self._clock.now(), write)
        self._leave_to_wider(self._leasing.unplaceable())
        self._gathering.poll(self._leasing.gathering)
        for note in self._leasing.supply.notes:
            self._telling.say(note)
        self._leasing.supply.notes.clear()

    def n_startable(self, now: Instant) -> int:
        """Trials that could start now given enough devices, including some queued ones."""
        if not self._may_start(now):
            return 0
        n_waiting = self._leasing.n_waiting + self._search.counts.n_waiting
        is_open = not self._end.why_no_more(now, is_new_trial=True)
        # What was found out while devices were free is out of date once there are none at all.
        if not is_open or (self._asking.found_nothing and self._leasing.pool.leases):
            return n_waiting
        n_trials = self._spending.budget.trials
        if n_trials is None:
            return _MANY
        return n_waiting + max(0, n_trials - self._search.counts.n_begun)

    def _grant_devices(self, now: Instant) -> None:
        while self._leasing.may_have_room and self._may_start(now):
            grant = self._leasing.next(partial(self._asking.now, now))
            if grant is None:
                break
            # Not at the beginning of the round: asking took its time, in which it held nothing.
            self._intend(self._clock.now(), grant)

    def _may_start(self, now: Instant) -> bool:
        # What was ended for a wider attempt would else have gone on, whatever the budget.
        is_owed = self._widening is not None and self._leasing.owes_devices
        is_over = bool(self._end.why_no_more(now, is_new_trial=False))
        if self._orders.paused_by or self._end.is_stopping or (is_over and not is_owed):
            return False
        return self._room.is_there(now.monotonic_s)

    def _has_nothing_to_start(self, now: Instant) -> bool:
        is_asked = self._asking.found_nothing and not self._leasing.n_waiting
        return is_asked and bool(self._end.why_no_more(now, is_new_trial=True))

    def _intend(self, now: Instant, grant: Grant) -> None:
        self._attempts.add(self._launching.intend(now, grant))

    def _launch_all(self, now: Instant, write: Callable[[Instant], None]) -> None:
        if self._attempts.next_to_launch is not None:
            write(now)
        while (live := self._attempts.next_to_launch) is not None:
            ending = self._launching.launch(now, live)
            if ending is not None:
                self._early_stop.conclude(now, live, ending)
                continue
            self._usage.has_changed = True
            started = Started(attempt=live.attempt, devices=live.labels, params=live.params)
            self._telling.add(started)

    def _leave_to_wider(self, candidates: Sequence[Candidate]) -> None:
        """Puts back trials that can never run here, for a dispatcher with enough devices."""
        for candidate in candidates:
            self._search.put_back(candidate.asked.trial_id)
        if candidates:
            numbers = [candidate.asked.number for candidate in candidates]
            self._telling.say(self._stranding.too_wide_text(numbers))
