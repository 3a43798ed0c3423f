"""The durations of attempts, as the dispatcher sees them: from the lease to its release."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tuner.devices.allocation.pool import DevicePool, Lease
from tuner.devices.allocation.remaining import LEAST_ENDED, Running
from tuner.devices.device import Device

#: Durations that are remembered, for each number of devices and for all together.
N_KEPT = 128


@dataclass(slots=True)
class _Newest:
    """The newest durations, ascending. Bounded memory."""

    by_age: deque[float] = field(default_factory=deque)
    ascending: list[float] = field(default_factory=list)

    def add(self, length_s: float) -> None:
        if len(self.by_age) == N_KEPT:
            del self.ascending[bisect_left(self.ascending, self.by_age.popleft())]
        self.by_age.append(length_s)
        insort(self.ascending, length_s)


class Durations:
    """Knows how long attempts took, and for how long each lease has been held.

    Args:
        clock: The time in seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        #: When each lease that is held was taken, by its number. In that order.
        self._since_s: dict[int, float] = {}
        self._all = _Newest()
        self._by_n_devices: dict[int, _Newest] = {}
        self._longest_ended_s = 0.0

    @property
    def now_s(self) -> float:
        """The current time."""
        return self._clock()

    @property
    def are_known(self) -> bool:
        """Whether enough attempts have ended to predict from."""
        return len(self._all.ascending) >= LEAST_ENDED

    @property
    def longest_s(self) -> float:
        """The longest attempt so far, in seconds; a running one counts with its age."""
        oldest_s = next(iter(self._since_s.values()), None)
        age_s = 0.0 if oldest_s is None else self.now_s - oldest_s
        return max(self._longest_ended_s, age_s)

    def started(self, lease: Lease) -> None:
        """A lease was taken."""
        self._since_s[lease.number] = self.now_s

    def ended(self, lease: Lease) -> None:
        """A lease was released. One that was not announced is ignored."""
        since_s = self._since_s.pop(lease.number, None)
        if since_s is None:
            return
        length_s = self.now_s - since_s
        self._longest_ended_s = max(self._longest_ended_s, length_s)
        self._all.add(length_s)
        self._by_n_devices.setdefault(len(lease.devices), _Newest()).add(length_s)

    def lengths_s(self, n_devices: int) -> Sequence[float]:
        """Durations of attempts on `n_devices` devices, ascending; of all if too few."""
        own = self._by_n_devices.get(n_devices)
        is_known = own is not None and len(own.ascending) >= LEAST_ENDED
        return own.ascending if own is not None and is_known else self._all.ascending

    def running(self, lease: Lease) -> Running:
        """Age and comparable durations of an attempt that holds a lease."""
        now_s = self.now_s
        age_s = now_s - self._since_s.get(lease.number, now_s)
        return Running(age_s=age_s, lengths_s=self.lengths_s(len(lease.devices)))

    def running_on(self, devices: Iterable[Device], pool: DevicePool) -> list[Running]:
        """The same for each attempt that holds a part of one of these devices."""
        leases = {lease.number: lease for each in devices for lease in pool.leases_on(each)}
        return [self.running(lease) for lease in leases.values()]
