"""State transitions of an attempt, each recorded."""

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
    """Moves an attempt to its next state and records it.

    Args:
        recorder: Writes the transition.
        live: The attempt.
        to: Its next state.
        now: The current time.
        params: The trial's parameters, if the attempt has ended.
        at: When it moved, in UTC, if this became known only now.

    Raises:
        InvalidTransition: If this transition does not exist.
    """
    live.attempt = advance(live.attempt, to, at=at or now.utc)
    recorder.moved(live.attempt, at=now.utc, params=params)
