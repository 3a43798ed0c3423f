"""Trials of many widths on virtual devices and a virtual clock: the tuner's policy, and others."""

import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tuner.devices.allocation.pool import DevicePool, Lease
from tuner.devices.allocation.width import Devices, Width
from tuner.devices.device import Device, DeviceId, DeviceKind

GIB = 2**30
MEDIAN_DURATION_S = 600.0
WHOLE_WIDTHS: tuple[Width, ...] = tuple(Devices(n_devices=n) for n in (1, 2, 4, 8))
WHOLE_WEIGHTS = (60, 20, 15, 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One that waits, and how long it will last."""

    number: int
    width: Width
    duration_s: float


def mixed_trials(
    n: int, *, widths: Sequence[Width], weights: Sequence[int], sigma: float, seed: int
) -> list[Trial]:
    """Trials of random widths, their durations lognormal with a median of ten minutes."""
    draw = random.Random(seed)
    return [
        Trial(
            number=number,
            width=draw.choices(widths, weights)[0],
            duration_s=draw.lognormvariate(math.log(MEDIAN_DURATION_S), sigma),
        )
        for number in range(n)
    ]


def machines(n_devices: int) -> list[Device]:
    """GPUs as in machines of eight: an NVLink island of 8, two NUMA nodes of 4."""
    return [
        Device(
            id=DeviceId(f"GPU-{index:08x}"),
            kind=DeviceKind.GPU,
            name="Virtual",
            index=index,
            memory_bytes=80 * GIB,
            island=index // 8,
            numa_node=index // 4,
        )
        for index in range(n_devices)
    ]


class Line(Protocol):
    """What the tuner's line is compared on."""

    def __len__(self) -> int: ...

    def put(self, item: Trial, width: Width) -> None: ...

    def has_room_for(self, pool: DevicePool, widths: Sequence[Width]) -> bool: ...

    def ended(self, lease: Lease) -> None: ...

    def start_next(
        self,
        pool: DevicePool,
        *,
        name: Callable[[Trial], str],
        may_use: Callable[[Trial, Device], bool],
    ) -> tuple[Trial, Lease] | None: ...


class FirstComeFirstServed:
    """Nothing ever passes the oldest."""

    def __init__(self) -> None:
        self._waiting: deque[Trial] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, item: Trial, width: Width) -> None:
        self._waiting.append(item)

    def has_room_for(self, pool: DevicePool, widths: Sequence[Width]) -> bool:
        return not self._waiting and any(map(pool.fits, widths))

    def ended(self, lease: Lease) -> None:
        """Nothing is learned from it."""

    def start_next(
        self,
        pool: DevicePool,
        *,
        name: Callable[[Trial], str],
        may_use: Callable[[Trial, Device], bool],
    ) -> tuple[Trial, Lease] | None:
        oldest = next(iter(self._waiting), None)
        lease = pool.lease(oldest.width, name(oldest)) if oldest else None
        return (self._waiting.popleft(), lease) if lease else None


class GreedyBackfill:
    """The oldest that fits starts, and devices are never kept for one that does not."""

    def __init__(self) -> None:
        self._queues: dict[Width, deque[Trial]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def put(self, item: Trial, width: Width) -> None:
        self._queues.setdefault(width, deque()).append(item)

    def has_room_for(self, pool: DevicePool, widths: Sequence[Width]) -> bool:
        return any(map(pool.fits, widths))

    def ended(self, lease: Lease) -> None:
        """Nothing is learned from it."""

    def start_next(
        self,
        pool: DevicePool,
        *,
        name: Callable[[Trial], str],
        may_use: Callable[[Trial, Device], bool],
    ) -> tuple[Trial, Lease] | None:
        queues = (queue for queue in self._queues.values() if queue)
        for queue in sorted(queues, key=lambda queue: queue[0].number):
            lease = pool.lease(queue[0].width, name(queue[0]))
            if lease is not None:
                return queue.popleft(), lease
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What became of some trials under one policy."""

    policy: str
    n_devices: int
    #: How many waited at most; None where all waited from the start.
    lookahead: int | None
    seed: int
    #: Of device-seconds, up to the end of the last trial.
    utilization_pct: float
    #: The same, up to the start of the last trial.
    utilization_while_waiting_pct: float
    #: From becoming the oldest to the start, in units of the longest trial.
    longest_wait_of_oldest: float


class Replay:
    """Runs trials on a virtual clock.

    Args:
        new_line: Makes the policy from a clock in seconds.
        n_devices: The devices.
        trials: In the order they are asked for.
        lookahead: Asks for one only where there is room and fewer than so many wait; None
            lets all wait from the start.
    """

    def __init__(
        self,
        new_line: Callable[[Callable[[], float]], Line],
        n_devices: int,
        trials: Sequence[Trial],
        lookahead: int | None = None,
    ) -> None:
        self._line = new_line(lambda: self._now_s)
        self._pool = DevicePool(machines(n_devices))
        self._longest_s = max(trial.duration_s for trial in trials)
        self._unasked = deque(trials)
        self._lookahead = lookahead
        self._now_s = self.device_s = 0.0
        self._running: list[tuple[float, int, Lease]] = []
        self._waiting: dict[int, None] = {}
        self._oldest: tuple[int | None, float] = (None, 0.0)
        self._longest_wait_s = 0.0

    def run(self, policy: str, seed: int) -> Replayed:
        """Runs to the end."""
        while_waiting_pct = 100.0
        self._fill()
        while self._running:
            was_waiting = self._is_waiting
            self._end_next()
            self._fill()
            if was_waiting and not self._is_waiting:
                while_waiting_pct = self._utilization_pct
        return Replayed(
            policy=policy,
            n_devices=len(self._pool.devices),
            lookahead=self._lookahead,
            seed=seed,
            utilization_pct=self._utilization_pct,
            utilization_while_waiting_pct=while_waiting_pct,
            longest_wait_of_oldest=self._longest_wait_s / self._longest_s,
        )

    @property
    def _is_waiting(self) -> bool:
        return bool(self._unasked or self._waiting)

    @property
    def _utilization_pct(self) -> float:
        return 100 * self.device_s / (self._now_s * len(self._pool.devices))

    def _fill(self) -> None:
        while self._start() or self._ask():
            pass

    def _ask(self) -> bool:
        if not self._unasked or not self._may_ask():
            return False
        trial = self._unasked.popleft()
        self._line.put(trial, trial.width)
        self._waiting[trial.number] = None
        self._note_oldest()
        return True

    def _may_ask(self) -> bool:
        if self._lookahead is None:
            return True
        return len(self._line) < self._lookahead and self._line.has_room_for(
            self._pool, WHOLE_WIDTHS
        )

    def _start(self) -> bool:
        # With all of them waiting from the start, none is judged before all are there.
        if self._lookahead is None and self._unasked:
            return False
        started = self._line.start_next(
            self._pool, name=lambda trial: str(trial.number), may_use=lambda *_: True
        )
        if started is None:
            return False
        trial, lease = started
        self._note_oldest()
        del self._waiting[trial.number]
        self._note_oldest()
        heapq.heappush(self._running, (self._now_s + trial.duration_s, lease.number, lease))
        return True

    def _note_oldest(self) -> None:
        oldest = next(iter(self._waiting), None)
        number, since_s = self._oldest
        if oldest != number:
            self._oldest = (oldest, self._now_s)
        else:
            self._longest_wait_s = max(self._longest_wait_s, self._now_s - since_s)

    def _end_next(self) -> None:
        held = sum(lease.n_devices_held for _, _, lease in self._running)
        at_s, _, lease = heapq.heappop(self._running)
        self.device_s += held * (at_s - self._now_s)
        self._now_s = at_s
        self._pool.release(lease)
        self._line.ended(lease)
