"""Attempts and checkpoints that a trial has had, whichever dispatcher they are from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Protocol, TypeVar

import sqlalchemy as sa

from tuner.domain.attempt import Ending
from tuner.store.records import attempt_history
from tuner.store.records.broken_program import n_forgiven
from tuner.store.records.checkpoint_rows import StoredCheckpoint, checkpoints_of

_Read = TypeVar("_Read")


class Reads(Protocol):
    """Runs a read on a connection and returns its result."""

    def __call__(self, look: Callable[[sa.Connection], _Read], /) -> _Read: ...


class TrialHistory:
    """Reads the records of trials; all methods raise `Unavailable` during an outage.

    Args:
        run: Runs a read.
    """

    def __init__(self, run: Reads) -> None:
        self._run = run

    def attempts_of(self, trial_id: int) -> int:
        """The number of attempts that a trial has had."""
        return self._run(lambda c: attempt_history.attempts_of(c, trial_id))

    def begun_at(self, trial_id: int) -> datetime | None:
        """When the first attempt of a trial got its devices, in UTC without a zone; or None."""
        return self._run(lambda c: attempt_history.begun_at(c, trial_id))

    def begun_at_of(self, trial_ids: Sequence[int]) -> dict[int, datetime]:
        """When the first attempt of each trial got its devices, by trial id.

        Trials without attempts are left out.
        """
        return self._run(lambda c: attempt_history.begun_at_of(c, trial_ids))

    def has_lost(self, trial_id: int, *, after: int, before: int) -> bool:
        """Whether an attempt between two others ended without its dispatcher seeing the end.

        Args:
            trial_id: The trial.
            after: Number of the attempt before the range.
            before: Number of the attempt after the range.
        """
        return self._run(
            lambda c: attempt_history.has_lost(c, trial_id, after=after, before=before)
        )

    def endings_of(self, trial_id: int) -> list[Ending]:
        """Endings of a trial's attempts, the oldest first; without those of a broken program."""
        look = attempt_history.endings_of
        return self._run(lambda c: look(c, trial_id, after=n_forgiven(c, trial_id)))

    def checkpoints_of(self, trial_id: int) -> list[StoredCheckpoint]:
        """The recorded checkpoints of a trial, the newest first."""
        return self._run(lambda c: checkpoints_of(c, trial_id))
