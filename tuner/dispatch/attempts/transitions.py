"""The moves of an attempt from state to state, each recorded."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from tuner.dispatch.attempts.live_attempt import LiveAttempt
from tuner.domain.attempt import AttemptState, advance
from tuner.host.clock import Instant
from tuner.search_spaces import ParamValue
from tuner.store.records.recorder import Recorder


def move(
    recorder: Recorder,
    live: LiveAttempt,
    to: AttemptState,
    now: Instant,
    params: Mapping[str, ParamValue] | None = None,
    at: datetime | None = None,
) -> None:
    """
    Args:
        recorder: Who writes it down.
        live: The attempt.
        to: Its next state.
        now: The present.
        params: Those that the trial turned out to have, where the attempt has ended.
        at: When it moved, in UTC, where that became known only now.

    Raises:
        InvalidTransition: If there is no such move.
    """
    live.attempt = advance(live.attempt, to, at=at or now.utc)
    recorder.moved(live.attempt, at=now.utc, params=params)
