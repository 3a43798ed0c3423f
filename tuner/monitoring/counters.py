"""Metrics of a study for monitoring: counted in the loop, read by other threads."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tuner.devices.idle_causes import IDLE_STATES
from tuner.dispatch.notices import Ended, Notice, Snapshot, View
from tuner.domain.attempt import AttemptState, Outcome

#: A device, and why it was idle; an empty cause if it was busy.
DeviceState: TypeAlias = tuple[str, str]

BUSY = ""

_REFRESH_EVERY_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One reading. It never changes, so that any thread may read it at any time."""

    snapshot: Snapshot
    #: Attempts that ended since the start of this dispatcher.
    n_ended: Mapping[Outcome, int]
    #: Since the start of this dispatcher.
    device_s: Mapping[DeviceState, float]
    #: Time of the dispatcher's last iteration, in seconds since the epoch.
    at_s: float


class FiguresView:
    """A view that counts notices, and delegates to another view.

    Args:
        view: Shows notices.
        publish: Receives each reading.
        now: The time in seconds since the epoch.
    """

    def __init__(
        self,
        view: View,
        publish: Callable[[Figures], None],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._view = view
        self._publish = publish
        self._now = now
        self._n_ended: Counter[Outcome] = Counter()
        self._device_s: defaultdict[DeviceState, float] = defaultdict(float)
        self._last: Snapshot | None = None
        self.refresh_every_s = min(view.refresh_every_s, _REFRESH_EVERY_S)

    def show(self, notice: Notice) -> None:
        self._view.show(notice)
        if isinstance(notice, Ended):
            self._n_ended[notice.ending.outcome] += 1

    def refresh(self, snapshot: Snapshot) -> None:
        self._view.refresh(snapshot)
        self._count_seconds(snapshot)
        self._publish(
            Figures(
                snapshot=snapshot,
                n_ended=dict(self._n_ended),
                device_s=dict(self._device_s),
                at_s=self._now(),
            )
        )

    def _count_seconds(self, snapshot: Snapshot) -> None:
        """Counts the state of the last snapshot until this one, a quarter of a second later."""
        if self._last is not None:
            passed_s = max(0.0, snapshot.elapsed_s - self._last.elapsed_s)
            for state in states_of(self._last):
                self._device_s[state] += passed_s
        for device, _ in states_of(snapshot):
            # From the first scrape on: Prometheus cannot compute the growth of a missing series.
            self._device_s[device, BUSY] += 0.0
        self._last = snapshot


def states_of(snapshot: Snapshot) -> Iterator[DeviceState]:
    """The state of each device; a shared one is busy while any of its attempts is."""
    held: dict[str, str] = {}
    for running in snapshot.running:
        cause = IDLE_STATES.get(AttemptState(running.state))
        for device in running.devices:
            # One computing attempt among several is enough.
            if cause is None or held.get(device) != BUSY:
                held[device] = BUSY if cause is None else cause.value
    yield from sorted(held.items())
    yield from sorted(snapshot.idle_causes.items())
