"""Requests the next trial from the search, for a free device or ahead of time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tuner.devices.idle_causes import IdleCause
from tuner.dispatch.attempts.endings.trial_outcome import TrialOutcomes
from tuner.dispatch.attempts.live_attempt import LiveAttempt
from tuner.dispatch.object_store.restores import Restores
from tuner.dispatch.supply.budget_tracker import BudgetTracker
from tuner.dispatch.supply.grants import Candidate
from tuner.dispatch.supply.leasing import Leasing
from tuner.dispatch.supply.prefetch import Foresight
from tuner.dispatch.upkeep.device_usage import Usage
from tuner.domain.attempt import AttemptId
from tuner.host.clock import Clock, Instant
from tuner.search.asked_trial import AskedTrial
from tuner.search.study import StudySearch
from tuner.store.records.dispatchers.peers import Fleet

#: Limit of queued suggestions that do not fit here, in addition to one per started trial. If some
#: trials may fit, this many in a row are almost never all too wide.
MOST_TOO_WIDE = 32


class WhyNoMore(Protocol):
    def __call__(self, now: Instant, *, is_new_trial: bool) -> str:
        """Why no trial may start; empty if one may."""


class TrialSource:
    """Supplies trials for free devices.

    Args:
        search: The study.
        settling: Knows what earlier attempts of a trial have left.
        spending: The rest of the budget.
        leasing: The devices, and the queue for them.
        fleet: The other dispatchers of the study.
        usage: Records how long devices waited for a suggestion.
        live: The attempts that hold devices now.
        clock: The time; a suggestion takes some.
        why_no_more: Whether the study may start trials.
        is_repeatable: Whether trials on one device must not depend on measured times.
        restores: Fetches checkpoints from an object store; None if there is none.
    """

    def __init__(
        self,
        *,
        search: StudySearch,
        settling: TrialOutcomes,
        spending: BudgetTracker,
        leasing: Leasing,
        fleet: Fleet,
        usage: Usage,
        live: Mapping[AttemptId, LiveAttempt],
        clock: Clock,
        why_no_more: WhyNoMore,
        is_repeatable: bool = False,
        restores: Restores | None = None,
    ) -> None:
        self._search = search
        self._settling = settling
        self._spending = spending
        self._leasing = leasing
        self._fleet = fleet
        self._usage = usage
        self._live = live
        self._clock = clock
        self._why_no_more = why_no_more
        self._is_repeatable = is_repeatable
        self._restores = restores
        self._foresight = Foresight()
        self._is_making_suggestion = False
        #: Whether there was no trial for a free device.
        self.found_nothing = False

    def ended(self, lasted_s: float) -> None:
        """Adds the time that an attempt held its devices, in seconds."""
        self._foresight.ended(lasted_s)

    def now(self, now: Instant) -> Candidate | None:
        """A trial for a free device; None if none may start."""
        began = self._clock.now()
        candidate = self._ask(now)
        waiting = [device.id for device in self._leasing.pool.free]
        self._usage.spent(IdleCause.NO_SUGGESTION, began, self._clock.now(), waiting)
        is_fetching = self._restores is not None and self._restores.n_waiting > 0
        self.found_nothing = (
            candidate is None and not self._is_making_suggestion and not is_fetching
        )
        return candidate

    def ahead(self, now: Instant) -> Candidate | None:
        """A trial for the device that becomes free next, if devices would wait for a suggestion."""
        n_devices = len(self._leasing.pool.devices)
        if not self._live or not self._leasing.may_look_ahead:
            return None
        # Whether it is worth it is a matter of measured times, and of one result more or less.
        if self._is_repeatable and n_devices == 1:
            return None
        if not self._foresight.is_worth_it(n_devices) or self._leaves_last_ones(n_devices):
            return None
        # It starts when another one has ended, and has to end within the budget itself.
        if not self._spending.has_room_for_new(now, times=2.0):
            return None
        return self._ask(now)

    def _ask(self, now: Instant) -> Candidate | None:
        self._is_making_suggestion = False
        if self._why_no_more(now, is_new_trial=False):
            return None
        if self._restores is not None:
            if (fetched := self._restores.take_ready()) is not None:
                return self._settling.candidate(fetched) or self._ask(now)
            # A trial whose checkpoint is on its way gets the next device.
            if self._restores.n_waiting >= max(1, len(self._leasing.pool.free)):
                return None
        is_last = bool(self._why_no_more(now, is_new_trial=True))
        began_s = self._clock.now().monotonic_s
        asked = self._search.resume(
            is_last=is_last and not self._live,
            is_closing=is_last and self._spending.leader_fits(now),
        )
        self._settling.tell_of_members()
        if asked is None and is_last:
            return None
        if asked is None and self._leaves_enough_to_wider():
            return None
        # The process that makes it wakes the loop.
        self._is_making_suggestion = asked is None and not self._search.is_ready
        if self._is_making_suggestion:
            return None
        asked = asked or self._search.ask()
        if asked is not None and self._fetches(asked, now):
            return self._ask(now)
        candidate = None if asked is None else self._settling.candidate(asked)
        if asked is not None and candidate is None:
            return self._ask(now)  # That trial has failed: another one may start.
        here_s = self._clock.now().monotonic_s - began_s
        self._foresight.asked(here_s + self._search.suggestions.duration_s)
        return candidate

    def _fetches(self, asked: AskedTrial, now: Instant) -> bool:
        """Starts to fetch a checkpoint that is missing here; returns whether there is one."""
        if self._restores is None:
            return False
        if asked.is_new and not self._search.is_copy(asked.trial_id):
            return False
        self._settling.prepare_to_fetch(asked)
        if not self._restores.is_needed(asked):
            return False
        self._restores.begin(asked, now.monotonic_s)
        return True

    def _leaves_enough_to_wider(self) -> bool:
        """Whether the limit of queued suggestions that do not fit here is reached.

        They wait for dispatchers with more devices. Without a limit they would fill the study.
        """
        if not self._search.counts.n_waiting or self._search.has_waiting:
            return False
        return len(self._search.left_to_others()) >= MOST_TOO_WIDE + self._search.counts.n_begun

    def _leaves_last_ones(self, n_devices: int) -> bool:
        """Whether so few trials are left that other dispatchers may have devices for them."""
        n_trials = self._spending.budget.trials
        if n_trials is None or not self._fleet.others:
            return False
        return n_trials - self._search.counts.n_begun < 2 * n_devices
