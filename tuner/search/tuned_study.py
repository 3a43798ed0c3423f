"""Optuna's study, where the dispatcher asks it and not `optimize`."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set

import optuna
from optuna.study._tell import _tell_with_warning
from optuna.trial import TrialState

from tuner.store.buffered_storage import BufferedStorage
from tuner.store.ownership import NoTrialLeft


class TunedStudy(optuna.Study):
    """An Optuna study whose sampler may say, outside of `optimize`, that nothing is left to try."""

    is_exhausted = False

    def stop(self) -> None:
        self.is_exhausted = True

    #: Numbers of trials that wait for their turn, which is not the next free device's.
    paused: Callable[[], Set[int]] = frozenset

    #: Begins a trial by itself, and gives its id; None where it can be any.
    begin: Callable[[], int | None] | None = None

    def end(self, number: int, state: TrialState, values: Sequence[float] | None = None) -> None:
        """What `tell` does, but for the copy of the trial that it gives, which nobody looks at."""
        _tell_with_warning(study=self, trial=number, value_or_values=values, state=state)

    @property
    def has_waiting(self) -> bool:
        """Whether trials wait for a device, apart from those that are paused."""
        assert isinstance(self._storage, BufferedStorage)
        counts = self._storage.count_trials(self._study_id)
        return counts[TrialState.WAITING] > len(self.paused())

    def _pop_waiting_trial_id(self) -> int | None:
        trial_id = self._waiting_trial_id()
        if trial_id is None and self.begin is not None:
            # Where there is nothing to begin, an ordinary trial would be one too many.
            trial_id = self.begin()
            if trial_id is None:
                raise NoTrialLeft
        return trial_id

    def _waiting_trial_id(self) -> int | None:
        # Optuna looks at every trial for one that waits, though mostly none does.
        if not self.has_waiting:
            return None
        storage, states, paused = self._storage, (TrialState.WAITING,), self.paused()
        for trial in storage.get_all_trials(self._study_id, deepcopy=False, states=states):
            if trial.number in paused:
                continue
            if storage.set_trial_state_values(trial._trial_id, TrialState.RUNNING):
                return trial._trial_id
        return None
