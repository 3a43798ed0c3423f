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
#: Maximum seconds by which an engine may announce a time limit earlier than requested.
_EARLY_S = 120.0
#: A trial that ran for so much of an allocation had a fair chance to save.
_FAIR_SHARE = 0.5


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
        self._started_at = started_at
        self._has_gained = False
        self._longest_lost_s = 0.0

    @property
    def is_lent(self) -> bool:
        """Whether the dispatcher runs in an allocation."""
        return self._terms is not None

    def ended(self, lasted_s: float) -> None:
        """Adds the duration of a completed attempt, in seconds."""
        self._durations_s.append(lasted_s)

    def cut(self, lasted_s: float, *, has_files: bool) -> None:
        """Notes that an attempt was interrupted, pruned or paused.

        Args:
            lasted_s: Its duration in seconds.
            has_files: Whether something is left of it for a later attempt, or the trial is over.
        """
        self._has_gained = self._has_gained or has_files
        if not has_files:
            self._longest_lost_s = max(self._longest_lost_s, lasted_s)

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

    def why_too_short(self, now: Instant) -> str:
        """Why another allocation of this length would gain nothing either; empty if it may."""
        left_s = self._left_s(now)
        if left_s is None or self._terms is None or left_s > self._notice_s + _EARLY_S:
            return ""
        began_s = (now.utc - self._started_at.utc) / timedelta(seconds=1)
        usable_s = began_s + left_s - self._notice_s
        if self._has_gained or self._durations_s or self._first_save_s():
            return ""
        if self._longest_lost_s < _FAIR_SHARE * usable_s or not self._longest_lost_s:
            return ""
        lasted = f"{self._longest_lost_s:.0f} s"
        return (
            f"{self._terms.place} is too short: a trial ran for {lasted}, saved no checkpoint, and "
            "would start from the beginning in the next allocation. Save checkpoints "
            "(trial.save_checkpoint), or give engine.time more than a trial takes"
        )

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
