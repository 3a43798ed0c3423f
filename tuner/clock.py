"""Time as an argument: what the present is, and how long something has lasted."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Instant:
    """One moment, on both clocks."""

    #: For records. May jump.
    utc: datetime
    #: For deadlines and durations. Never jumps; its zero has no meaning.
    monotonic_s: float


class Clock(Protocol):
    """Where the dispatcher gets the time from."""

    def now(self) -> Instant: ...


class SystemClock:
    """The machine's own clocks."""

    def now(self) -> Instant:
        return Instant(utc=datetime.now(UTC), monotonic_s=time.monotonic())
