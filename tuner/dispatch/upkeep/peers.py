"""Tracks the study's other dispatchers: their results, and whether they are alive."""

from __future__ import annotations

import math
from collections.abc import Callable

from optuna.trial import TrialState

from tuner.dispatch.supply.device_supply import DeviceSupply
from tuner.host.clock import Instant
from tuner.search.study import StudySearch
from tuner.store.records.dispatchers.peers import Fleet

#: Intervals in seconds at which the results and the records of other dispatchers are read.
_SYNC_EVERY_S = 1.0
_LOOK_EVERY_S = 5.0
#: Each dispatcher reads of all others: with more than these the intervals grow with their number,
#: so that the database is asked for no more than in proportion to it.
_N_OTHERS = 25
#: An upper limit of both: trials of a lost dispatcher wait for a minute and one interval.
_SELDOM_S = 10.0


class Others:
    """Reads what other dispatchers report, and requeues the trials of dead ones.

    Args:
        search: The study.
        fleet: The other dispatchers.
        supply: The devices, which may still be leased to another dispatcher.
        say: Shows a message to the user.
        now: The current time.
        counts_devices: Whether to count their device-hours (for a budget of device-hours).
    """

    def __init__(
        self,
        search: StudySearch,
        fleet: Fleet,
        supply: DeviceSupply,
        say: Callable[[str], None],
        *,
        now: Instant,
        counts_devices: bool,
    ) -> None:
        self._search = search
        self._fleet = fleet
        self._supply = supply
        self._say = say
        self._counts_devices = counts_devices
        self._synced_at_s = now.monotonic_s
        #: Looks at once: if it is cut off from the database soon, it must know of others.
        self._looked_at_s = -math.inf
        self._is_wait_said = False
        self._is_uncounted = False
        supply.note_leased(fleet.leases.holders)

    def poll(self, now: Instant) -> None:
        """Reads the other dispatchers' state, at intervals."""
        if now.monotonic_s - self._looked_at_s >= self._interval_s(_LOOK_EVERY_S):
            self._look(now)
        elif now.monotonic_s - self._synced_at_s >= self._interval_s(_SYNC_EVERY_S):
            self._sync(now)

    def count_devices(self, is_wanted: bool) -> None:
        """Sets whether the device-hours of other dispatchers are counted."""
        if is_wanted and not self._counts_devices:
            # Also of those that have come and gone meanwhile.
            self._is_uncounted = True
            self._looked_at_s = -math.inf
        self._counts_devices = is_wanted

    def must_be_waited_for(self, now: Instant) -> bool:
        """Whether trials run elsewhere that would be retried here if they were lost."""
        if not self._n_elsewhere:
            return False
        # Their dispatcher may have joined since the last check.
        soon_s = self._interval_s(_SYNC_EVERY_S)
        if not self._fleet.others or now.monotonic_s - self._looked_at_s >= soon_s:
            self._look(now)
        if not self._n_elsewhere or not self._fleet.others:
            # None, or those of somebody who is no dispatcher; or one that died has left some here.
            return self._search.has_waiting
        if not self._is_wait_said:
            self._is_wait_said = True
            self._say(
                f"Every trial is begun; {self._n_elsewhere} run on other dispatchers. This one "
                "stays, should one be lost. Ctrl-C ends it without harm."
            )
        return True

    def may_run(self, n_devices: int, now: Instant) -> bool:
        """Whether another dispatcher has `n_devices` devices, or trials run elsewhere."""
        soon_s = self._interval_s(_SYNC_EVERY_S)
        if not self._fleet.others or now.monotonic_s - self._looked_at_s >= soon_s:
            self._look(now)
        if not self._fleet.others:
            return False
        return self._n_elsewhere > 0 or self._fleet.most_devices >= n_devices

    @property
    def places(self) -> tuple[str, ...]:
        """Hosts of the other dispatchers at the last check, as text."""
        return self._fleet.others

    @property
    def _n_elsewhere(self) -> int:
        """Number of running trials, while none runs here."""
        return self._search.counts.by_state()[TrialState.RUNNING]

    def _interval_s(self, seconds: float) -> float:
        """An interval as it is for so many dispatchers."""
        stretch = max(1.0, len(self._fleet.others) / _N_OTHERS)
        return min(max(seconds, _SELDOM_S), seconds * stretch)

    def _look(self, now: Instant) -> None:
        self._looked_at_s = now.monotonic_s
        for loss in self._fleet.look(now):
            numbers = ", ".join(map(str, loss.trial_numbers)) or "none"
            self._say(f"The dispatcher on {loss.place} is gone. Trials that wait: {numbers}.")
        self._fleet.leases.look(now)
        self._supply.note_leased(self._fleet.leases.holders)
        if self._counts_devices and (self._fleet.others or self._is_uncounted):
            self._fleet.measure()
            self._is_uncounted = False
        self._sync(now)

    def _sync(self, now: Instant) -> None:
        self._synced_at_s = now.monotonic_s
        self._search.sync()
