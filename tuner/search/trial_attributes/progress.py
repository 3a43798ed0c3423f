"""Progress of a trial when its attempts started to get lost."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.store.optuna_tables.storage import BufferedStorage

_PROGRESS_KEY = "tuner:progress"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressMark:
    """Progress of a trial after an attempt.

    Args:
        attempt: Number of the attempt.
        step: The largest reported or saved step.
        saved_at_s: Time of the newest file that the program saved in its own format.
    """

    attempt: int
    step: int
    saved_at_s: int

    def is_beyond(self, other: ProgressMark) -> bool:
        """Whether the trial has done something new since another mark."""
        return self.step > other.step or self.saved_at_s > other.saved_at_s


class ProgressMarks:
    """Keeps one mark for each trial that lost an attempt, in the trial's attributes.

    Args:
        storage: Holds the trials.
    """

    def __init__(self, storage: BufferedStorage) -> None:
        self._storage = storage

    def last_step(self, trial_id: int) -> int:
        """The largest step in a trial's curve; -1 for none."""
        return max(self._storage.get_trial(trial_id).intermediate_values, default=-1)

    def mark_of(self, trial_id: int) -> ProgressMark | None:
        """The mark that was set last."""
        match self._storage.get_trial(trial_id).system_attrs.get(_PROGRESS_KEY):
            case [int(attempt), int(step), int(saved_at_s)]:
                return ProgressMark(attempt=attempt, step=step, saved_at_s=saved_at_s)
        return None

    def set_mark(self, trial_id: int, mark: ProgressMark) -> None:
        """Replaces a trial's mark."""
        stored = [mark.attempt, mark.step, mark.saved_at_s]
        self._storage.set_trial_system_attr(trial_id, _PROGRESS_KEY, stored)
