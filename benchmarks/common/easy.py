"""EASY backfill (Lifka 1995) with perfect knowledge of durations, which the tuner does not have."""

from collections import deque
from collections.abc import Callable, Sequence

from benchmarks.common.replay import Trial
from tuner.devices.allocation.pool import DevicePool, Lease
from tuner.devices.allocation.width import Width, n_devices_of
from tuner.devices.device import Device


class EasyBackfill:
    """The oldest gets a promise; a younger one starts where the promise holds nevertheless.

    The promise is the earliest time at which enough devices are free. A younger trial starts if it
    ends by then, or if it takes devices that the oldest leaves over.

    Args:
        clock: The time in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiting: deque[Trial] = deque()
        #: When each lease ends, and how many devices it has, by its number.
        self._ends: dict[int, tuple[float, int]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, item: Trial, width: Width) -> None:
        self._waiting.append(item)

    def has_room_for(self, pool: DevicePool, widths: Sequence[Width]) -> bool:
        return any(map(pool.fits, widths))

    def ended(self, lease: Lease) -> None:
        del self._ends[lease.number]

    def start_next(
        self,
        pool: DevicePool,
        *,
        name: Callable[[Trial], str],
        may_use: Callable[[Trial, Device], bool],
    ) -> tuple[Trial, Lease] | None:
        trial = self._next(pool)
        lease = pool.lease(trial.width, name(trial)) if trial else None
        if trial is None or lease is None:
            return None
        self._waiting.remove(trial)
        self._ends[lease.number] = (self._clock() + trial.duration_s, len(lease.devices))
        return trial, lease

    def _next(self, pool: DevicePool) -> Trial | None:
        if not self._waiting:
            return None
        oldest = self._waiting[0]
        n_free = len(pool.free)
        if n_devices_of(oldest.width) <= n_free:
            return oldest
        promised_s, n_left_over = self._promise(n_devices_of(oldest.width), n_free)
        for trial in self._waiting:
            n_devices = n_devices_of(trial.width)
            is_in_time = self._clock() + trial.duration_s <= promised_s
            if n_devices <= n_free and (is_in_time or n_devices <= n_left_over):
                return trial
        return None

    def _promise(self, n_needed: int, n_free: int) -> tuple[float, int]:
        """When so many devices are free, and how many are left over then."""
        for at_s, n_devices in sorted(self._ends.values()):
            n_free += n_devices
            if n_free >= n_needed:
                return at_s, n_free - n_needed
        raise ValueError(f"{n_needed} devices are more than there are.")
