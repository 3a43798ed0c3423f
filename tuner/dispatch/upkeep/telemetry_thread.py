"""Looks at every device again and again, in a thread that nobody waits for.

The loop says who holds what, by a reference that is put in the place of the last one, and takes
the sums away from time to time. The thread does nothing else than read and add.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tuner.devices.device import Device, DeviceId
from tuner.devices.usage.readings import DeviceReading, Sessions, Telemetry
from tuner.devices.usage.tally import Holding, Tally, charge, tally_of
from tuner.domain.attempt import AttemptId
from tuner.host.clock import Clock, Instant

_log = logging.getLogger(__name__)

#: For the look that is under way at the end.
_CLOSE_S = 10.0
#: A look stands for the time since the last one, but not for a night in which the machine slept.
_LONGEST_SPAN = 5
#: Of all devices, while nobody takes them: ten minutes of eight.
_MOST_WAITING = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What was seen of a device within one second."""

    device_id: DeviceId
    #: Since the epoch.
    start_s: int
    tally: Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """What was seen since the last time that somebody asked."""

    devices: Sequence[Sample] = ()
    #: All that is known of each attempt that was seen, from its beginning.
    attempts: Mapping[tuple[AttemptId, DeviceId], Tally] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.devices or self.attempts)


#: Opens a way to read devices; None where the driver refuses.
OpenTelemetry = Callable[[Sequence[Device]], Telemetry | None]


class Sampler:
    """Reads devices, and charges what they do to who holds them.

    Args:
        open_telemetry: Called by whoever looks first, and when the devices change.
        devices: Which.
        clock: The time.
        every_s: From one look to the next.
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
        #: With the devices that it was opened for.
        self._telemetry: tuple[tuple[Device, ...], Telemetry | None] = ((), None)
        self._clock = clock
        self._every_s = every_s
        self._holdings: tuple[Holding, ...] = ()
        self._lock = threading.Lock()
        self._looked_at_s: float | None = None
        self._second = 0
        #: Of the present second, which more looks may fall into.
        self._present: dict[DeviceId, Tally] = {}
        self._past: deque[Sample] = deque(maxlen=_MOST_WAITING)
        self._attempts: dict[tuple[AttemptId, DeviceId], Tally] = {}
        self._changed: set[tuple[AttemptId, DeviceId]] = set()
        self._is_closing = threading.Event()
        self._thread: threading.Thread | None = None

    def hold(self, holdings: Sequence[Holding]) -> None:
        """Who holds what from now on."""
        self._holdings = tuple(holdings)

    def look_at(self, devices: Sequence[Device]) -> None:
        """Which devices are read from now on."""
        self._devices = tuple(devices)

    def start(self) -> None:
        """Looks from now on, until `close`."""
        self._thread = threading.Thread(target=self._work, name="sampling", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Looks no more. Safe to call twice."""
        self._is_closing.set()
        if self._thread is not None:
            self._thread.join(_CLOSE_S)
            if self._thread.is_alive():
                # A driver that does not answer; the thread is a daemon, and holds nobody up.
                _log.warning("Devices are still being read after %g s: not waited for", _CLOSE_S)
                return
        if self._telemetry[1] is not None:
            self._telemetry[1].close()

    def look(self, now: Instant) -> None:
        """One look at all devices."""
        holdings = self._holdings
        sessions: dict[DeviceId, frozenset[int]] = {}
        for each in holdings:
            sessions[each.device_id] = sessions.get(each.device_id, frozenset()) | each.sessions
        readings = self._read(sessions, now.monotonic_s)
        passed_s = 0.0 if self._looked_at_s is None else now.monotonic_s - self._looked_at_s
        self._looked_at_s = now.monotonic_s
        span_s = min(passed_s, _LONGEST_SPAN * self._every_s)
        if span_s > 0:
            self._add(readings, holdings, span_s, now)

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
        """What was seen since the last time, but for the second that is not over."""
        with self._lock:
            devices = tuple(self._past)
            self._past.clear()
            attempts = {key: self._attempts[key] for key in self._changed}
            self._changed.clear()
            held = {(each.attempt_id, each.device_id) for each in self._holdings}
            # Copies: the thread goes on adding.
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
        with self._lock:
            if second > self._second:
                self._past += [
                    Sample(device_id=device_id, start_s=self._second, tally=tally)
                    for device_id, tally in self._present.items()
                ]
                self._present, self._second = {}, second
            # Who gave a device back meanwhile is charged no more: its sums may have been taken.
            still = frozenset(self._holdings)
            for device_id, reading in readings.items():
                seen = self._present.setdefault(device_id, Tally())
                seen.add(tally_of(reading, round(1000 * span_s)))
                on_it = [each for each in holdings if each.device_id == device_id and each in still]
                self._charge(reading, on_it, span_s, now.monotonic_s)

    def _charge(
        self, reading: DeviceReading, holdings: Sequence[Holding], span_s: float, now_s: float
    ) -> None:
        spans_ms = {
            each.attempt_id: round(1000 * max(0.0, min(span_s, now_s - each.since_s)))
            for each in holdings
        }
        for attempt_id, tally in charge(reading, holdings, spans_ms).items():
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
            # The edge of a thread: training goes on without figures.
            _log.exception("Devices are not looked at any more")


def _copy(tally: Tally) -> Tally:
    copy = Tally()
    copy.add(tally)
    return copy
