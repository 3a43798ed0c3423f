"""Turn-taking of a population's members when there are fewer devices than members.

A member pauses after an interval, like a trial at a rung, until those behind it have caught up.
"""

from __future__ import annotations

from optuna.trial import FrozenTrial, TrialState

from tuner.domain.messages import Action
from tuner.search.population.members import Members
from tuner.search.population.next_member import Succession
from tuner.search.scheduler import Verdict
from tuner.store.optuna_compat import trial_id_of
from tuner.store.optuna_tables.pauses import note_pause, note_resume
from tuner.store.optuna_tables.storage import BufferedStorage

#: With a member: the step at which it paused last, and does not pause again.
_RESTED_KEY = "tuner:rested"


class Turns:
    """Pauses and resumes members so that others can catch up.

    Args:
        members: The population's members.
        succession: Starts members.
        storage: Holds the study.
        study_id: Its id.
    """

    def __init__(
        self, members: Members, succession: Succession, storage: BufferedStorage, study_id: int
    ) -> None:
        self._members = members
        self._succession = succession
        self._storage = storage
        self._study_id = study_id

    def rest(self, trial: FrozenTrial, step: int) -> Verdict | None:
        """Pauses a member that is ahead of members waiting for a device; None if there are none."""
        copies = self._succession.copies
        if self._members.length is None or copies is None:
            return None
        # It may have reported further before it paused than it had saved.
        has_rested = step <= trial.system_attrs.get(_RESTED_KEY, -1)
        if has_rested or not self._has_behind(step):
            return None
        if not copies.has_state(trial.number):
            return None
        reason = f"at step {step}: members of the population that are behind it go first"
        return Verdict(action=Action.PAUSE, reason=reason)

    def pause(self, trial: FrozenTrial) -> None:
        """Lets a member that has no device any more wait for those behind it."""
        step = max(trial.intermediate_values, default=0)
        self._storage.set_trial_system_attr(trial_id_of(trial), _RESTED_KEY, step)
        note_pause(self._storage, trial_id_of(trial), step)
        self._members.paused[trial.number] = step

    def resume(self, *, is_last: bool) -> int | None:
        """Claims the member that is furthest behind for this dispatcher; returns its id.

        Args:
            is_last: Whether no other trial can start. Otherwise members further behind come first.
        """
        paused = self._members.paused
        while paused:
            number = min(paused, key=lambda each: (paused[each], each))
            if not is_last and self._has_behind(paused[number]):
                return None
            if (trial_id := self.take(number)) is not None:
                return trial_id
        return None

    def take(self, number: int) -> int | None:
        """Claims a paused member; None if another dispatcher was faster."""
        del self._members.paused[number]
        trial_id = self._storage.get_trial_id_from_study_id_trial_number(self._study_id, number)
        if not self._storage.set_trial_state_values(trial_id, TrialState.RUNNING):
            return None
        note_resume(self._storage, trial_id)
        return trial_id

    def _has_behind(self, step: int) -> bool:
        """Whether a waiting member has not reached this step."""
        waiting = self._storage.count_trials(self._study_id)[TrialState.WAITING]
        paused = self._members.paused
        if waiting > len(paused) or any(each < step for each in paused.values()):
            return True
        if self._storage.n_trials_left <= 0:
            return False
        return self._succession.has_before(step)
