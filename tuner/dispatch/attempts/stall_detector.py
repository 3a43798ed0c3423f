"""Detects stalled attempts, which neither report nor use CPU or GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tuner.dispatch.attempts.live_attempt import LiveAttempt
from tuner.domain.attempt import AttemptState

#: Checks without activity before an attempt counts as stalled: work may come in bursts.
_N_LOOKS = 10
_MIN_LOOK_EVERY_S = 0.5
_MAX_LOOK_EVERY_S = 30.0
#: If a check is late by this factor, the dispatcher itself was suspended.
_LATE = 3


class Stalls:
    """Detects stalls of running attempts.

    Args:
        limit_s: Seconds that an attempt may neither report nor work; None for no limit.
        is_working: Whether an attempt's processes or devices were active since the last call.
    """

    def __init__(self, limit_s: float | None, is_working: Callable[[LiveAttempt], bool]) -> None:
        self.limit_s = limit_s
        self._is_working = is_working
        every_s = (limit_s or 0.0) / _N_LOOKS
        self._look_every_s = min(max(every_s, _MIN_LOOK_EVERY_S), _MAX_LOOK_EVERY_S)
        self._looked_at_s: float | None = None

    def find(self, attempts: Iterable[LiveAttempt], now_s: float) -> Iterator[LiveAttempt]:
        """Yields the attempts that have stalled.

        Args:
            attempts: All attempts that hold devices.
            now_s: The monotonic time in seconds.
        """
        passed_s = self._look_every_s if self._looked_at_s is None else now_s - self._looked_at_s
        if self.limit_s is None or passed_s < self._look_every_s:
            return
        was_away = passed_s > _LATE * self._look_every_s
        self._looked_at_s = now_s
        for live in attempts:
            if live.attempt.state is not AttemptState.RUNNING:
                continue
            # Asked also where it reports: what it has done since then must be known next time.
            # What it sent while the dispatcher stood still may not have been read yet.
            if self._is_working(live) or live.heard_at_s is None or was_away:
                live.heard_at_s = now_s
            if now_s - live.heard_at_s >= self.limit_s:
                yield live
