"""Keeps the profile of the best trial and removes all others."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from tuner.dispatch.notices import Ended, Notice, Snapshot, View
from tuner.domain.attempt import Outcome

_log = logging.getLogger(__name__)
PROFILES = "profile-*.json.gz"


class BestProfile:
    """A view that removes profiles as trials end, and delegates to another view.

    Args:
        view: Shows notices.
        folder_of: The folder of a trial, by number.
        best: Number of the best trial of earlier starts; None without one.
    """

    def __init__(self, view: View, folder_of: Callable[[int], Path], best: int | None) -> None:
        self._view = view
        self._folder_of = folder_of
        self._best = best

    @property
    def refresh_every_s(self) -> float:
        """As the other view."""
        return self._view.refresh_every_s

    def refresh(self, snapshot: Snapshot) -> None:
        """Passes a snapshot on."""
        self._view.refresh(snapshot)

    def show(self, notice: Notice) -> None:
        """Passes a notice on; of a trial that has ended, removes the profile that is not kept."""
        self._view.show(notice)
        if not isinstance(notice, Ended):
            return
        is_over = not notice.will_retry and notice.ending.outcome is not Outcome.PAUSED
        number = notice.attempt.trial_number
        if notice.is_best and notice.ending.outcome is Outcome.COMPLETED:
            if self._best is not None and self._best != number:
                self._remove(self._best)
            self._best = number
        elif is_over and number != self._best:
            self._remove(number)

    def _remove(self, trial: int) -> None:
        for path in self._folder_of(trial).glob(PROFILES):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                _log.warning("Profile %s cannot be removed: %s", path, error)
