"""Samples all devices in a thread, without blocking the loop.

The loop replaces the reference to the current leases, and collects the sums at intervals. The
thread only reads and adds.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from tuner.devices.device import Device, DeviceId
from tuner.devices.usage.readings import DeviceReading, Sessions, Telemetry
from tuner.devices.usage.tally import Holding, Tally, charge, tally_of
from tuner.domain.attempt import AttemptId
from tuner.host.clock import Clock, Instant

_log = logging.getLogger(__name__)

#: Seconds to wait at the end for a reading in progress.
_CLOSE_S = 10.0
#: A reading counts for the time since the last one, up to this many intervals: the machine may have
#: been suspended.
_LONGEST_SPAN = 5
#: Maximum number of samples, of all devices, before they are collected: ten minutes for eight
#: devices.
_MOST_WAITING = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Readings of one device within one second."""

    device_id: DeviceId
    #: Seconds since the epoch.
    start_s: int
    tally: Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Readings since the last collection."""

    devices: Sequence[Sample] = ()
    #: Totals of each attempt in these readings, since its start.
    attempts: Mapping[tuple[AttemptId, DeviceId], Tally] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.devices or self.attempts)


#: Opens telemetry for devices; None if the driver refuses.
OpenTelemetry = Callable[[Sequence[Device]], Telemetry | None]


class Sampler:
    """Reads devices, and attributes their usage to the attempts that hold them.

    Args:
        open_telemetry: Called by the thread that reads first, and when the devices change.
        devices: The devices.
        clock: The time.
        every_s: Sampling interval in seconds.
    """

    def __init__(
        self,
        open_telemetry: OpenTelemetry,
        devices: Sequence[Device],
        clock: Clock,
        *,
        every_s: float,
    ) -> None:
        self._open_telemetry = open_telemetry
        self._devices = tuple(devices)
        #: With the devices for which it was opened.
        self._telemetry: tuple[tuple[Device, ...], Telemetry | None] = ((), None)
        self._clock = clock
        self._every_s = every_s
        self._holdings: tuple[Holding, ...] = ()
        self._lock = threading.Lock()
        self._looked_at_s: float | None = None
        #: What was read then.
        self._readings: Mapping[DeviceId, DeviceReading] = {}
        self._second = 0
        #: Readings of the current second, which is not complete.
        self._present: dict[DeviceId, Tally] = {}
        self._past: deque[Sample] = deque(maxlen=_MOST_WAITING)
        self._attempts: dict[tuple[AttemptId, DeviceId], Tally] = {}
        self._changed: set[tuple[AttemptId, DeviceId]] = set()
        self._is_closing = threading.Event()
        self._thread: threading.Thread | None = None

    def hold(self, holdings: Sequence[Holding], now_s: float) -> None:
        """Sets the current leases.

        Args:
            holdings: The leases. Attempts that are not among them any more have ended.
            now_s: When they ended, on the monotonic clock.
        """
        with self._lock:
            self._charge_ended({_key(each) for each in holdings}, now_s)
            self._holdings = tuple(holdings)

    def look_at(self, devices: Sequence[Device]) -> None:
        """Replaces the devices to read."""
        self._devices = tuple(devices)

    def start(self) -> None:
        """Starts sampling, until `close`."""
        self._thread = threading.Thread(target=self._work, name="sampling", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops sampling. Safe to call twice."""
        self._is_closing.set()
        if self._thread is not None:
            self._thread.join(_CLOSE_S)
            if self._thread.is_alive():
                # The driver does not respond; the thread is a daemon, so it blocks nothing.
                _log.warning("Devices are still being read after %g s: not waited for", _CLOSE_S)
                return
        if self._telemetry[1] is not None:
            self._telemetry[1].close()

    def look(self, now: Instant) -> None:
        """Reads all devices once."""
        holdings = self._holdings
        sessions: dict[DeviceId, frozenset[int]] = {}
        for each in holdings:
            sessions[each.device_id] = sessions.get(each.device_id, frozenset()) | each.sessions
        readings = self._read(sessions, now.monotonic_s)
        with self._lock:
            span_s = self._span_s(now.monotonic_s)
            self._looked_at_s, self._readings = now.monotonic_s, readings
            if span_s > 0:
                self._add(readings, holdings, span_s, now)

    def _span_s(self, now_s: float) -> float:
        """Seconds that a reading counts for."""
        passed_s = 0.0 if self._looked_at_s is None else now_s - self._looked_at_s
        return min(passed_s, _LONGEST_SPAN * self._every_s)

    def _read(self, sessions: Sessions, now_s: float) -> Mapping[DeviceId, DeviceReading]:
        devices, telemetry = self._telemetry
        if devices != self._devices:
            if telemetry is not None:
                telemetry.close()
            devices = self._devices
            telemetry = self._open_telemetry(devices) if devices else None
            self._telemetry = (devices, telemetry)
        return {} if telemetry is None else telemetry.read(sessions, now_s)

    def take(self) -> Samples:
        """Readings since the last call, without the current second."""
        with self._lock:
            devices = tuple(self._past)
            self._past.clear()
            attempts = {key: self._attempts[key] for key in self._changed}
            self._changed.clear()
            held = {(each.attempt_id, each.device_id) for each in self._holdings}
            # Copies: the thread keeps adding.
            copies = {key: _copy(tally) for key, tally in attempts.items()}
            self._attempts = {key: each for key, each in self._attempts.items() if key in held}
        return Samples(devices=devices, attempts=copies)

    def _add(
        self,
        readings: Mapping[DeviceId, DeviceReading],
        holdings: Sequence[Holding],
        span_s: float,
        now: Instant,
    ) -> None:
        second = max(int(now.utc.timestamp()), self._second)
        if second > self._second:
            self._past += [
                Sample(device_id=device_id, start_s=self._second, tally=tally)
                for device_id, tally in self._present.items()
            ]
            self._present, self._second = {}, second
        # Attempts that released a device meanwhile are skipped: their sums may have been
        # collected.
        still = {_key(each) for each in self._holdings}
        for device_id, reading in readings.items():
            seen = self._present.setdefault(device_id, Tally())
            seen.add(tally_of(reading, round(1000 * span_s)))
            on_it = [
                each for each in holdings if each.device_id == device_id and _key(each) in still
            ]
            self._charge(reading, on_it, span_s, now.monotonic_s)

    def _charge_ended(self, still: AbstractSet[tuple[AttemptId, DeviceId]], now_s: float) -> None:
        """Charges ended attempts for the time since the last look, with what was read then.

        If they had ended before that look, they get back what they were charged too much.
        """
        if self._looked_at_s is None or all(_key(each) in still for each in self._holdings):
            return
        for device_id, reading in self._readings.items():
            on_it = [each for each in self._holdings if each.device_id == device_id]
            # What was read before an attempt began is not its own.
            ended = {
                each.attempt_id
                for each in on_it
                if _key(each) not in still and each.since_s < self._looked_at_s
            }
            self._charge(reading, on_it, self._span_s(now_s), now_s, only=ended)

    def _charge(
        self,
        reading: DeviceReading,
        holdings: Sequence[Holding],
        span_s: float,
        now_s: float,
        *,
        only: Collection[AttemptId] | None = None,
    ) -> None:
        """Adds a reading to the sums of attempts on a device; `only` of some of them."""
        spans_ms = {
            each.attempt_id: round(1000 * max(min(0.0, span_s), min(span_s, now_s - each.since_s)))
            for each in holdings
        }
        for attempt_id, tally in charge(reading, holdings, spans_ms).items():
            if only is not None and attempt_id not in only:
                continue
            (device_id,) = {each.device_id for each in holdings}
            key = (attempt_id, device_id)
            self._attempts.setdefault(key, Tally()).add(tally)
            self._changed.add(key)

    def _work(self) -> None:
        try:
            while not self._is_closing.is_set():
                self.look(self._clock.now())
                self._is_closing.wait(self._every_s)
        except Exception:
            # The edge of a thread: training continues without telemetry.
            _log.exception("Devices are not looked at any more")


def _key(holding: Holding) -> tuple[AttemptId, DeviceId]:
    return holding.attempt_id, holding.device_id


def _copy(tally: Tally) -> Tally:
    copy = Tally()
    copy.add(tally)
    return copy
