"""Resumed trials that had no step left to run.

The training had ended before: Ctrl-C arrived during work after the last step, or the pruner paused
the trial at its last step. The program then loads its checkpoint, has nothing to do, and reports no
value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from tuner.checkpoints.paths import StudyFiles
from tuner.dispatch.attempts.endings.attempt_ending import completed
from tuner.dispatch.attempts.live_attempt import LiveAttempt
from tuner.domain.attempt import Cause, Ending, Outcome
from tuner.search.study import StudySearch
from tuner.search.trial_attributes.last_report import LastReport
from tuner.store.connection.transactions import Unavailable
from tuner.store.records.recorder import Recorder

# `return loss` after a loop that had no step left to set it.
_UNSET_NAME = re.compile(r"^(?:UnboundLocalError|NameError): ", re.MULTILINE)


class NothingLeft:
    """Completes such a trial with its last reported value, or restarts it without its checkpoint.

    Args:
        search: The study.
        recorder: Has the endings of earlier attempts.
        files: Paths of checkpoints.
        say: Shows a message to the user.
    """

    def __init__(
        self,
        *,
        search: StudySearch,
        recorder: Recorder,
        files: StudyFiles,
        say: Callable[[str], None],
    ) -> None:
        self._search = search
        self._recorder = recorder
        self._files = files
        self._say = say

    def judge(self, live: LiveAttempt, ending: Ending) -> Ending:
        """The corrected ending if the attempt had nothing left to do; else `ending` unchanged.

        Args:
            live: The attempt.
            ending: The ending derived from the attempt alone.
        """
        attempt = live.attempt
        if attempt.number == 1 or live.last_step is not None or live.hang:
            return ending
        gave_nothing = _gave_nothing(live, ending)
        if not gave_nothing and not self._had_no_step(live, ending):
            return ending
        last = self._search.last_reports.read(attempt.trial_id)
        if gave_nothing and last is not None and self._is_end(live, last):
            found = completed(last.values, self._search.objectives, "")
            taken = (
                f"It had nothing left to do: its values are those that it reported at step "
                f"{last.step} in attempt {last.attempt}."
            )
            return replace(found, detail=f"{taken}\n{found.detail}".strip())
        return self._without_checkpoint(live, ending)

    def note(self, live: LiveAttempt, ending: Ending) -> None:
        """Stores the last report of an unfinished trial, for its next attempt."""
        is_over = ending.outcome in (Outcome.COMPLETED, Outcome.PRUNED)
        if is_over or live.last_step is None or live.is_miscounting:
            return
        attempt = live.attempt
        last = LastReport(attempt=attempt.number, step=live.last_step, values=live.last_values)
        self._search.last_reports.record(attempt.trial_id, last)

    def _is_end(self, live: LiveAttempt, last: LastReport) -> bool:
        """Whether a report was the trial's last and may be at the training's last step."""
        n_steps = self._search.n_steps
        if n_steps is not None and last.step < n_steps:
            return False
        if n_steps is None and not self._has_files(live.attempt.trial_number):
            return False
        try:
            # A dispatcher that was killed took the last reports along.
            return not self._recorder.history.has_lost(
                live.attempt.trial_id, after=last.attempt, before=live.attempt.number
            )
        except Unavailable:
            return False

    def _had_no_step(self, live: LiveAttempt, ending: Ending) -> bool:
        """Whether a program failed because a variable that only a step sets was unset.

        If an earlier attempt failed in the same way after its steps, the cause is another one.
        """
        if not _lacks_variable(ending):
            return False
        try:
            earlier = self._recorder.history.endings_of(live.attempt.trial_id)
        except Unavailable:
            return False
        return not any(map(_lacks_variable, earlier))

    def _without_checkpoint(self, live: LiveAttempt, ending: Ending) -> Ending:
        """Restarts a trial from its first step, without using a retry."""
        attempt = live.attempt
        number = attempt.trial_number
        if not self._has_files(number) or not self._search.last_reports.start_over_once(
            attempt.trial_id
        ):
            return ending
        aside = self._files.set_aside_checkpoints(number, attempt.number)
        try:
            self._files.checkpoints(number).rename(aside)
        except OSError:
            return ending
        self._say(
            f"Trial {number} was resumed and had nothing left to do, and its last value is not "
            f"known for certain. It starts again without its checkpoint, which is in {aside} now."
        )
        return Ending(
            outcome=Outcome.CANCELLED,
            cause=Cause.NO_RESULT,
            detail=f"It starts again without its checkpoint.\n{ending.detail}",
        )

    def _has_files(self, trial_number: int) -> bool:
        """Whether a checkpoint exists, in any format."""
        try:
            return any(self._files.checkpoints(trial_number).iterdir())
        except OSError:
            return False


def _gave_nothing(live: LiveAttempt, ending: Ending) -> bool:
    """Whether a program exited without an error and without a value."""
    said = live.finished
    is_well = said is not None and said.outcome is Outcome.COMPLETED and not said.values
    return is_well and ending.outcome is Outcome.FAILED and ending.cause is Cause.NO_RESULT


def _lacks_variable(ending: Ending) -> bool:
    """Whether a program failed because a variable was unset."""
    is_own = ending.cause in (Cause.EXCEPTION, Cause.EXIT_CODE)
    return is_own and _UNSET_NAME.search(ending.detail) is not None
