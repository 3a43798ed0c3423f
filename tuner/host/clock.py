"""Time as an argument: the current time and durations."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Instant:
    """One moment, on both clocks."""

    #: For records.
    utc: datetime
    #: For deadlines and durations. Never jumps; its zero has no meaning.
    monotonic_s: float
    #: The same moment on the clock that all processes of a machine share; None for no such clock.
    since_boot_s: float | None = None

    def utc_at(self, since_boot_s: float | None) -> datetime:
        """UTC time of a moment recorded by another process of this machine, at most this one.

        Args:
            since_boot_s: That process's `since_boot_s()`; None if unknown.
        """
        if self.since_boot_s is None or since_boot_s is None or not math.isfinite(since_boot_s):
            return self.utc
        ago_s = min(max(0.0, self.since_boot_s - since_boot_s), self.since_boot_s)
        return self.utc - timedelta(seconds=ago_s)


class Clock(Protocol):
    """The dispatcher's source of time."""

    def now(self) -> Instant: ...


class SystemClock:
    """The machine's clocks, synchronized when this object was made.

    If the machine's clock is changed later, timestamps continue in the old time: durations of
    leases stay correct, and all timestamps of one dispatcher are in order.
    """

    def __init__(self) -> None:
        self._begin = datetime.now(UTC)
        self._begin_s = since_boot_s()

    def now(self) -> Instant:
        now_s = since_boot_s()
        passed = timedelta(seconds=now_s - self._begin_s)
        return Instant(utc=self._begin + passed, monotonic_s=time.monotonic(), since_boot_s=now_s)


def since_boot_s() -> float:
    """Seconds since boot; never jumps, and includes suspended time if the system supports it."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boottime is None else time.clock_gettime(boottime)
