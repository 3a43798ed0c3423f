"""The table of this dispatcher's attempts that hold devices.

Whether an attempt waits for its launch, runs or has ended is read from its own state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tuner.dispatch.attempts.live_attempt import LiveAttempt
from tuner.domain.attempt import AttemptId, AttemptState


class AttemptTable(Mapping[AttemptId, LiveAttempt]):
    """Attempts by id, in the order in which their devices were leased."""

    def __init__(self) -> None:
        self._attempts: dict[AttemptId, LiveAttempt] = {}

    def __getitem__(self, attempt_id: AttemptId) -> LiveAttempt:
        return self._attempts[attempt_id]

    def __iter__(self) -> Iterator[AttemptId]:
        return iter(self._attempts)

    def __len__(self) -> int:
        return len(self._attempts)

    def add(self, live: LiveAttempt) -> None:
        """Adds an attempt whose devices were just leased."""
        self._attempts[live.attempt.id] = live

    def remove(self, live: LiveAttempt) -> None:
        """Removes an attempt whose devices are free."""
        del self._attempts[live.attempt.id]

    @property
    def next_to_launch(self) -> LiveAttempt | None:
        """The first attempt that has no process yet; None if all are launched."""
        return next((live for live in self.active if live.attempt.pid is None), None)

    @property
    def active(self) -> list[LiveAttempt]:
        """Attempts that have not ended."""
        return [live for live in self._attempts.values() if not _is_over(live)]

    @property
    def clearing(self) -> list[LiveAttempt]:
        """Attempts that have ended and whose devices are not free yet."""
        return [live for live in self._attempts.values() if _is_over(live)]


def _is_over(live: LiveAttempt) -> bool:
    return live.attempt.state is AttemptState.CLEARING
