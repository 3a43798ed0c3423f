"""Learns how many attempts a device should run at once, from its measured throughput.

A second attempt on a GPU may double its throughput (small models leave it idle most of the time),
add nothing, or cost some. So the number, the level, is increased step by step: one attempt per
device, then two, as long as each step clearly brings more reports per second. At intervals the next
step, up or down, is tried again, since trials change.

Trials differ in speed, often tenfold, which is more than the effect of any step. So an attempt that
ran before and after a step is compared with itself; its startup, without reports but with computing
neighbours, is taken into account. If attempts are too short for this there are many of them, and
their means are compared. Each comparison has a known error, and the two are combined by it. For
programs that never report, ended attempts are counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from tuner.devices.device import Device, DeviceId
from tuner.devices.packing.throughput import (
    MIN_REPORTS,
    Measure,
    compare_means,
    compare_pairs,
    joined,
)

#: Minimum gain of a step up: less is noise, and each further attempt risks memory.
_GAIN = 1.05
#: Minimum data to judge a level: seconds of a device, and reports, or else endings per slot.
_MIN_S = 20.0
_MIN_ENDS = 3
#: A level that is unclear after this many device-seconds is judged by its mean alone.
_MAX_TRIAL_S = 300.0
#: A new attempt starts next to others, and thus more slowly than the first one alone.
_WARM_UP = 1.5
_LOOK_EVERY_S = 1.0
#: Seconds without a trial of a step that did not pay; doubled each time. At least this many
#: durations of attempts, too.
_REST_S = 600.0
_REST_ATTEMPTS = 4.0
_MAX_REST_S = 4 * 3600.0
#: Attempts that run out of memory within this many seconds count as one event.
_TOGETHER_S = 10.0


class Packing:
    """The levels of a study's devices. Devices of one type share what is learned.

    An attempt's calls come in order: started, reported, at most one out_of_memory, ended.

    Args:
        devices: All devices of the study.
        max_level: Maximum number of attempts on a device.
    """

    def __init__(self, devices: Sequence[Device], *, max_level: int = 16) -> None:
        self._max_level = max_level
        self._climbs_by_kind: dict[tuple[str, int | None], _Climb] = {}
        self._climbs: dict[DeviceId, _Climb] = {}
        for device in devices:
            self.add(device)

    def add(self, device: Device) -> None:
        """The study may have one more device. Safe to call twice."""
        if device.id in self._climbs:
            return
        kind = (device.name, device.memory_bytes)
        climb = self._climbs_by_kind.setdefault(kind, _Climb(max_level=self._max_level))
        climb.loads[device.id] = _Load()
        self._climbs[device.id] = climb

    def limit(self, device_id: DeviceId) -> int:
        """Maximum number of attempts on this device now; at least 1."""
        return self._climbs[device_id].level

    def started(self, device_id: DeviceId, attempt_id: str, now_s: float) -> None:
        """An attempt was launched."""
        self._climbs[device_id].start(device_id, attempt_id, now_s)

    def reported(self, device_id: DeviceId, attempt_id: str, now_s: float) -> None:
        """An attempt sent a report."""
        self._climbs[device_id].report(device_id, attempt_id, now_s)

    def out_of_memory(self, device_id: DeviceId, now_s: float) -> None:
        """An attempt got no more memory: its device carries too many."""
        self._climbs[device_id].back_off(device_id, now_s)

    def ended(self, device_id: DeviceId, attempt_id: str, now_s: float) -> None:
        """Records the end of an attempt, whatever its outcome."""
        self._climbs[device_id].end(device_id, attempt_id, now_s)


@dataclass(slots=True, kw_only=True)
class _Load:
    """The load of a device."""

    attempts: set[str] = field(default_factory=set)
    #: Those of them that have reported.
    steady: set[str] = field(default_factory=set)
    known_until_s: float = 0.0
    #: The most attempts since the level changed: returning to this number needs no warm-up.
    high: int = 0
    raised_at_s: float = 0.0
    warm_at_s: float = math.inf
    #: By number of attempts: when it last carried this many (monotonic seconds).
    carried_at_s: dict[int, float] = field(default_factory=dict)

    def most_since(self, since_s: float) -> int:
        return max((n for n, at_s in self.carried_at_s.items() if at_s >= since_s), default=0)


@dataclass(slots=True, kw_only=True)
class _Climb:
    """The level of all devices of one type."""

    max_level: int
    loads: dict[DeviceId, _Load] = field(default_factory=dict)
    best: int = 1
    #: The level next to the best one while it is on trial, else the best.
    level: int = 1
    direction: int = 1
    measures: dict[int, Measure] = field(default_factory=dict)
    has_reports: bool = False
    #: From the first attempt's start to its first sign of life.
    startup_s: float | None = None
    #: Total time of all attempts, and the part of it before their first reports.
    attempt_s: float = 0.0
    silent_s: float = 0.0
    n_ended: int = 0
    looked_at_s: float = -math.inf
    rest_until_s: float = -math.inf
    n_rests: int = 0
    cap: int | None = None
    cap_until_s: float = -math.inf
    n_caps: int = 0

    # -- hearing -----------------------------------------------------------------------------

    def start(self, device_id: DeviceId, attempt_id: str, now_s: float) -> None:
        load = self._pass_time(device_id, now_s)
        load.attempts.add(attempt_id)
        if len(load.attempts) > load.high:
            load.high, load.raised_at_s = len(load.attempts), now_s
            load.warm_at_s = (
                math.inf if self.startup_s is None else now_s + _WARM_UP * self.startup_s
            )
        self._look(now_s)

    def report(self, device_id: DeviceId, attempt_id: str, now_s: float) -> None:
        load = self._pass_time(device_id, now_s)
        if attempt_id not in load.attempts:
            return
        if not self.has_reports:
            # What was known was in ends.
            self.has_reports, self.measures = True, {}
            self._go_to(self.best)
        if self._is_measured(load, now_s):
            tally = self._measure(self.level).of(attempt_id)
            tally.n_events += 1
            tally.n_steady += 1.0 if attempt_id in load.steady else 0.5
        load.steady.add(attempt_id)
        self._warm_up(load, now_s)
        self._look(now_s)

    def end(self, device_id: DeviceId, attempt_id: str, now_s: float) -> None:
        load = self._pass_time(device_id, now_s)
        if attempt_id not in load.attempts:
            return
        if self._is_measured(load, now_s):
            tally = self._measure(self.level).of(attempt_id)
            tally.n_events += 0 if self.has_reports else 1
            tally.n_steady -= 0.5 if attempt_id in load.steady else 0.0
        self._warm_up(load, now_s)
        load.attempts.remove(attempt_id)
        load.steady.discard(attempt_id)
        self.n_ended += 1
        self._look(now_s)

    def back_off(self, device_id: DeviceId, now_s: float) -> None:
        n_attempts = self._pass_time(device_id, now_s).most_since(now_s - _TOGETHER_S)
        if n_attempts < 2:
            return  # It was alone: no level is lower.
        cap = min(n_attempts - 1, self._ceiling(now_s))
        if cap != self.cap or now_s >= self.cap_until_s:
            self.n_caps += 1
        self.cap, self.cap_until_s = cap, now_s + _doubled_s(_REST_S, self.n_caps)
        self.rest_until_s = max(self.rest_until_s, now_s + _REST_S)
        self.best = min(self.best, cap)
        if self.level > cap:
            self._go_to(self.best)

    # -- measuring ---------------------------------------------------------------------------

    def _pass_time(self, device_id: DeviceId, now_s: float) -> _Load:
        load = self.loads[device_id]
        passed_s = max(0.0, now_s - load.known_until_s)
        self.attempt_s += passed_s * len(load.attempts)
        self.silent_s += passed_s * (len(load.attempts) - len(load.steady))
        if self._is_measured(load, now_s):
            self._add_time(load, min(passed_s, now_s - load.warm_at_s))
        load.known_until_s = max(now_s, load.known_until_s)
        load.carried_at_s[len(load.attempts)] = now_s
        return load

    def _add_time(self, load: _Load, seconds: float) -> None:
        measure = self._measure(self.level)
        for attempt_id in sorted(load.attempts):
            tally = measure.of(attempt_id)
            tally.seconds += seconds
            tally.steady_s += seconds * (attempt_id in load.steady)

    def _is_measured(self, load: _Load, now_s: float) -> bool:
        return len(load.attempts) == self.level and now_s > load.warm_at_s

    def _warm_up(self, load: _Load, now_s: float) -> None:
        """Learns the start time of an attempt from its first report."""
        if load.warm_at_s == math.inf:
            load.warm_at_s = now_s
            self.startup_s = max(self.startup_s or 0.0, now_s - load.raised_at_s)

    def _measure(self, level: int) -> Measure:
        return self.measures.setdefault(level, Measure(level=level))

    # -- deciding ----------------------------------------------------------------------------

    def _look(self, now_s: float) -> None:
        if now_s - self.looked_at_s < _LOOK_EVERY_S:
            return
        self.looked_at_s = now_s
        for device_id in self.loads:
            self._pass_time(device_id, now_s)
        if self.level != self.best:
            self._judge(now_s)
        elif now_s >= self.rest_until_s:
            self._try_next(now_s)

    def _try_next(self, now_s: float) -> None:
        measure = self._measure(self.best)
        if measure.seconds < _MIN_S or measure.n_events < self._min_events:
            return
        for direction in (self.direction, -self.direction):
            if self._is_open(self.best + direction, now_s):
                self.direction = direction
                self._go_to(self.best + direction)
                return

    def _judge(self, now_s: float) -> None:
        pays = self._pays()
        if pays:
            self.best, self.n_rests = self.level, 0
            if not self._is_open(self.best + self.direction, now_s):
                self._rest(now_s)
        elif pays is not None:
            self._rest(now_s)
            self._go_to(self.best)

    def _rest(self, now_s: float) -> None:
        attempt_s = self.attempt_s / max(1, self.n_ended)
        rest_s = max(_REST_S, _REST_ATTEMPTS * attempt_s)
        self.rest_until_s = now_s + _doubled_s(rest_s, self.n_rests)
        self.n_rests += 1
        self.direction = -self.direction

    def _pays(self) -> bool | None:
        """Whether the level on trial is better than the best; None while that is not clear."""
        now, before = self._measure(self.level), self._measure(self.best)
        if now.seconds < _MIN_S:
            return None
        comparison = joined(
            compare_pairs(now, before, startup_share=self._startup_share),
            compare_means(now, before, min_events=self._min_events),
        )
        # A step down pays where the step up from there would not.
        least = _GAIN if self.level > self.best else 1 / _GAIN
        is_late = now.seconds >= _MAX_TRIAL_S
        return comparison.exceeds(least, is_late=is_late) if comparison else None

    def _go_to(self, level: int) -> None:
        self.level = level
        if level != self.best:
            self.measures[level] = Measure(level=level)
        for load in self.loads.values():
            load.high = len(load.attempts)

    def _is_open(self, level: int, now_s: float) -> bool:
        return 1 <= level <= self._ceiling(now_s)

    def _ceiling(self, now_s: float) -> int:
        if self.cap is None or now_s >= self.cap_until_s:
            return self.max_level
        return min(self.cap, self.max_level)

    @property
    def _startup_share(self) -> float:
        """Fraction of an attempt's time before its first report; 0 until one has ended."""
        return self.silent_s / self.attempt_s if self.n_ended else 0.0

    @property
    def _min_events(self) -> int:
        return MIN_REPORTS if self.has_reports else _MIN_ENDS * self.level


def _doubled_s(first_s: float, n_before: int) -> float:
    return min(_MAX_REST_S, first_s * 2.0 ** min(n_before, 16))
