"""Fails a trial whose attempts are lost repeatedly without progress."""

from __future__ import annotations

import re

from tuner.checkpoints.layout import newest_first, step_of
from tuner.checkpoints.paths import StudyFiles
from tuner.search.study import StudySearch
from tuner.search.trial_attributes.progress import ProgressMark
from tuner.store.connection.transactions import Unavailable
from tuner.store.records.attempt_history import explain_last, last_metric_step, lost_in_a_row
from tuner.store.records.recorder import Recorder

#: Consecutive lost attempts without progress after which the trial fails. A lost attempt alone does
#: not blame the program (the machine, the dispatcher or the fork server is gone), but this many are
#: more than restarts and preemptions explain: the trial itself ends its machine.
MOST_IN_VAIN = 20
#: Names of incomplete files.
_PARTIAL = re.compile(r"^\.|partial|tmp")


class LostAttempts:
    """Counts a trial's lost attempts since its last progress.

    Progress is a larger step, reported or saved, or a newer file that the program saved itself.
    Attempts that were lost before they started do not count.

    Args:
        search: The study, with curves and progress marks.
        recorder: Has the endings of earlier attempts.
        files: Paths of checkpoints.
    """

    def __init__(self, *, search: StudySearch, recorder: Recorder, files: StudyFiles) -> None:
        self._search = search
        self._recorder = recorder
        self._files = files
        self._given_up: set[int] = set()

    def has_given_up(self, trial_id: int) -> bool:
        """Whether a trial gets no further attempt."""
        return trial_id in self._given_up

    def why_over_before(self, trial_id: int, trial_number: int, attempt: int) -> str:
        """Why a trial gets no further attempt; the reason is also recorded with its last attempt.

        Args:
            trial_id: Id of the trial.
            trial_number: Its number.
            attempt: Number of its last attempt.

        Returns:
            A sentence; empty if the trial may run again.

        Raises:
            Unavailable: If the database does not answer now.
        """
        why = self._why_over(trial_id, trial_number, attempt, n_now=0)
        if why:
            self._recorder.run(lambda c: explain_last(c, trial_id, why))
        return why

    def why_over_after(self, trial_id: int, trial_number: int, attempt: int) -> str:
        """Like `why_over_before`, for a lost attempt whose ending is not written yet."""
        try:
            return self._why_over(trial_id, trial_number, attempt, n_now=1)
        except Unavailable:
            return ""

    def _why_over(self, trial_id: int, trial_number: int, attempt: int, *, n_now: int) -> str:
        if not n_now and not self._recorder.run(lambda c: lost_in_a_row(c, trial_id, after=0)):
            return ""
        reached = self._reached(trial_id, trial_number, attempt)
        before = self._search.progress.mark_of(trial_id)
        if before is None or reached.is_beyond(before):
            self._search.progress.set_mark(trial_id, reached)
            return ""
        first = before.attempt
        n_lost = n_now + self._recorder.run(lambda c: lost_in_a_row(c, trial_id, after=first))
        if n_lost < MOST_IN_VAIN:
            return ""
        self._given_up.add(trial_id)
        return (
            f"The last {n_lost} attempts were lost without progress (no larger step, no new "
            "checkpoint), so that the trial has failed: it probably ends its dispatcher or its "
            "machine."
        )

    def _reached(self, trial_id: int, trial_number: int, attempt: int) -> ProgressMark:
        step = max(
            self._search.progress.last_step(trial_id),
            self._recorder.run(lambda c: last_metric_step(c, trial_id)),
        )
        folder = self._files.checkpoints(trial_number)
        ours = newest_first(folder)
        saved_at_s = 0
        try:
            for path in set(folder.iterdir()).difference(ours):
                if not _PARTIAL.search(path.name):
                    saved_at_s = max(saved_at_s, int(path.stat().st_mtime))
        except OSError:
            pass  # No folder, or a file that is removed at this moment.
        return ProgressMark(
            attempt=attempt, step=max([step, *map(step_of, ours)]), saved_at_s=saved_at_s
        )
