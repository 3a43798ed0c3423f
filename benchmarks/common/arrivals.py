"""Trials with heavy-tailed durations that arrive over time. Virtual devices, virtual clock."""

import heapq
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from benchmarks.common.replay import Line, Trial, machines
from tuner.devices.allocation.pool import DevicePool, Lease
from tuner.devices.allocation.width import Devices

MEDIAN_S = 660.0
LOGNORMAL_SIGMA = 2.0
PARETO_INDEX = 1.1
N_DEVICES = 8
#: Weights of the widths 1 to 8: mostly powers of two.
WIDTH_WEIGHTS = (45, 20, 4, 15, 2, 3, 1, 10)


class Tail(Enum):
    """The distribution of durations; both have a median of 11 minutes."""

    LOGNORMAL = "lognormal"
    PARETO = "pareto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Trials with the times at which they arrive.

    Args:
        n_trials: How many.
        tail: The distribution of their durations.
        load: Device-seconds that arrive per device-second; None lets all wait from the start.
        lookahead: With it trials arrive as the tuner asks for them: while fewer than so many wait
            and there is room for one more. `load` is not used then.
    """

    n_trials: int
    tail: Tail
    load: float | None = None
    lookahead: int | None = None

    @property
    def name(self) -> str:
        if self.lookahead is not None:
            return f"{self.tail.value}, {self.lookahead} asked ahead"
        if self.load is None:
            return f"{self.tail.value}, all wait from the start"
        return f"{self.tail.value}, load {self.load:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A trial, and when it begins to wait."""

    trial: Trial
    at_s: float


def arrivals(workload: Workload, seed: int) -> list[Arrival]:
    """Draws the trials of a workload; arrival times are uniform (a Poisson process)."""
    draw = random.Random(seed)
    widths = draw.choices(range(1, N_DEVICES + 1), WIDTH_WEIGHTS, k=workload.n_trials)
    lengths_s = [_length_s(workload.tail, draw) for _ in widths]
    period_s = 0.0
    if workload.load is not None:
        work_s = sum(width * each_s for width, each_s in zip(widths, lengths_s, strict=True))
        period_s = work_s / N_DEVICES / workload.load
    times_s = sorted(draw.uniform(0, period_s) for _ in widths)
    return [
        Arrival(
            trial=Trial(number=number, width=Devices(n_devices=width), duration_s=length_s),
            at_s=at_s,
        )
        for number, (at_s, width, length_s) in enumerate(
            zip(times_s, widths, lengths_s, strict=True)
        )
    ]


def _length_s(tail: Tail, draw: random.Random) -> float:
    if tail is Tail.LOGNORMAL:
        return draw.lognormvariate(math.log(MEDIAN_S), LOGNORMAL_SIGMA)
    return MEDIAN_S / 2 ** (1 / PARETO_INDEX) * draw.paretovariate(PARETO_INDEX)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What became of one workload under one policy."""

    workload: str
    policy: str
    seed: int
    #: Of device-seconds while at least one trial waits.
    idle_while_waiting_pct: float
    makespan_s: float
    #: From becoming the oldest to the start, in longest attempts. The tuner's bound is 2.
    longest_wait_of_oldest: float
    #: From the arrival to the start.
    mean_wait_s: float
    #: The same of trials on 5 devices and more.
    mean_wait_of_wide_s: float


class LoadedReplay:
    """Runs a workload on a virtual clock.

    Args:
        new_line: Makes the policy from a clock.
        workload: What arrives.
        seed: Of the workload.
    """

    def __init__(
        self, new_line: Callable[[Callable[[], float]], Line], workload: Workload, seed: int
    ) -> None:
        self._line = new_line(lambda: self._now_s)
        self._workload = workload
        self._seed = seed
        self._arrivals = arrivals(workload, seed)
        self._n_arrived = 0
        self._pool = DevicePool(machines(N_DEVICES))
        self._running: list[tuple[float, int, Lease]] = []
        #: When each arrived that waits, by number. In that order.
        self._waiting: dict[int, float] = {}
        self._oldest: tuple[int | None, float] = (None, 0.0)
        self._now_s = self._longest_wait_s = self._waiting_s = self._idle_s = 0.0
        self._waits_s: dict[int, float] = {}

    def run(self, policy: str) -> Loaded:
        """Runs to the end."""
        self._fill()
        while self._running or self._has_more:
            self._advance()
            self._fill()
        longest_s = max(each.trial.duration_s for each in self._arrivals)
        wide = [each.trial.number for each in self._arrivals if _n_devices(each.trial) > 4]
        return Loaded(
            workload=self._workload.name,
            policy=policy,
            seed=self._seed,
            idle_while_waiting_pct=100 * self._idle_s / max(self._waiting_s * N_DEVICES, 1e-9),
            makespan_s=self._now_s,
            longest_wait_of_oldest=self._longest_wait_s / longest_s,
            mean_wait_s=sum(self._waits_s.values()) / len(self._waits_s),
            mean_wait_of_wide_s=sum(self._waits_s[each] for each in wide) / max(1, len(wide)),
        )

    @property
    def _has_more(self) -> bool:
        return self._n_arrived < len(self._arrivals)

    def _advance(self) -> None:
        """Goes on to the next event, and does all that happens at that moment."""
        next_s = self._running[0][0] if self._running else math.inf
        if self._has_more and self._workload.lookahead is None:
            next_s = min(next_s, self._arrivals[self._n_arrived].at_s)
        if self._waiting:
            self._waiting_s += next_s - self._now_s
            self._idle_s += (next_s - self._now_s) * len(self._pool.free)
        self._now_s = next_s
        while self._running and self._running[0][0] <= next_s:
            _, _, lease = heapq.heappop(self._running)
            self._pool.release(lease)
            self._line.ended(lease)

    def _fill(self) -> None:
        while self._arrive() or self._start() or self._ask():
            pass

    def _arrive(self) -> bool:
        is_due = self._has_more and self._arrivals[self._n_arrived].at_s <= self._now_s
        if self._workload.lookahead is not None or not is_due:
            return False
        self._put_next()
        return True

    def _ask(self) -> bool:
        most = self._workload.lookahead
        if most is None or not self._has_more or len(self._line) >= most:
            return False
        widths = [Devices(n_devices=n) for n in range(1, N_DEVICES + 1)]
        if not self._line.has_room_for(self._pool, widths):
            return False
        self._put_next()
        return True

    def _put_next(self) -> None:
        trial = self._arrivals[self._n_arrived].trial
        self._n_arrived += 1
        self._waiting[trial.number] = self._now_s
        self._line.put(trial, trial.width)
        self._note_oldest()

    def _start(self) -> bool:
        started = self._line.start_next(
            self._pool, name=lambda trial: str(trial.number), may_use=lambda *_: True
        )
        if started is None:
            return False
        trial, lease = started
        self._note_oldest()
        self._waits_s[trial.number] = self._now_s - self._waiting.pop(trial.number)
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


def _n_devices(trial: Trial) -> int:
    assert isinstance(trial.width, Devices)
    return trial.width.n_devices
