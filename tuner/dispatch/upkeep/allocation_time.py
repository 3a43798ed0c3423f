"""The allocation in which a dispatcher runs: when it ends, and whether it is still needed."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta

from tuner.dispatch.terms import AllocationTerms
from tuner.host.clock import Instant

#: Number of newest trials from which the time that a trial needs is estimated.
_N_KNOWN = 20


class AllocationTime:
    """Decides when trials may no longer start, when they must save, and when to leave.

    Args:
        terms: The allocation; None outside an engine.
        started_at: When this dispatcher started.
        first_save_s: Seconds from launch to first checkpoint, for each trial here that has saved.
    """

    def __init__(
        self,
        terms: AllocationTerms | None,
        *,
        started_at: Instant,
        first_save_s: Callable[[], Sequence[float]] = tuple,
    ) -> None:
        self._terms = terms
        self._first_save_s = first_save_s
        self._durations_s: deque[float] = deque(maxlen=_N_KNOWN)
        self._busy_at_s = started_at.monotonic_s

    @property
    def is_lent(self) -> bool:
        """Whether the dispatcher runs in an allocation."""
        return self._terms is not None

    def ended(self, lasted_s: float) -> None:
        """Adds the duration of a completed attempt, in seconds."""
        self._durations_s.append(lasted_s)

    def note(self, now: Instant, *, is_busy: bool) -> None:
        """Records whether a trial runs now."""
        if is_busy:
            self._busy_at_s = now.monotonic_s

    def why_no_more(self, now: Instant) -> str:
        """Why no trial may start; empty if one could save before the allocation ends."""
        left_s = self._left_s(now)
        if left_s is None or self._terms is None or left_s > self._needed_s:
            return ""
        return (
            f"{self._terms.place} ends in {max(0, round(left_s))} s, too soon for a trial to save"
        )

    def must_save(self, now: Instant) -> bool:
        """Whether running trials must save now, because the end is near."""
        left_s = self._left_s(now)
        return left_s is not None and left_s <= self._notice_s

    def why_idle(self, now: Instant) -> str:
        """Why the allocation is returned; empty while it is used."""
        if self._terms is None or now.monotonic_s - self._busy_at_s < self._terms.idle_s:
            return ""
        return f"no trial to run for {self._terms.idle_s:g} s"

    @property
    def _notice_s(self) -> float:
        return self._terms.notice_s if self._terms is not None else 0.0

    @property
    def _needed_s(self) -> float:
        """Seconds that a trial started now needs until its first checkpoint."""
        known = self._first_save_s() or self._durations_s
        return self._notice_s + (statistics.median(known) if known else 0.0)

    def _left_s(self, now: Instant) -> float | None:
        if self._terms is None or self._terms.deadline is None:
            return None
        return (self._terms.deadline - now.utc) / timedelta(seconds=1)
