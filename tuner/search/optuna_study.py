"""An Optuna study for use through ask and tell, without `optimize`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set

import optuna
from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from tuner.search.samplers.failure_guard import SamplerGuard
from tuner.store.optuna_compat import tell_with_warning, trial_id_of
from tuner.store.optuna_tables.storage import BufferedStorage
from tuner.store.records.dispatchers.ownership import NoTrialLeft


class TunedStudy(optuna.Study):
    """An Optuna study whose sampler may report, outside of `optimize`, that no trial is left."""

    is_exhausted = False

    def __init__(
        self,
        name: str,
        storage: BufferedStorage,
        *,
        sampler: BaseSampler,
        pruner: BasePruner,
    ) -> None:
        super().__init__(name, storage, sampler=sampler, pruner=pruner)
        self.guard = SamplerGuard(sampler, self.stop)

    def stop(self) -> None:
        self.is_exhausted = True

    #: Numbers of trials that wait for their turn, which is not the next free device's.
    paused: Callable[[], Set[int]] = frozenset

    #: Whether a trial that waits can run here; the others are left to other dispatchers.
    may_take: Callable[[FrozenTrial], bool] | None = None

    #: Starts a trial by itself and returns its id; None for any waiting trial.
    begin: Callable[[], int | None] | None = None

    def end(self, number: int, state: TrialState, values: Sequence[float] | None = None) -> None:
        """Like `tell`, without a copy of the trial."""
        tell_with_warning(study=self, trial=number, value_or_values=values, state=state)

    @property
    def has_waiting(self) -> bool:
        """Whether trials wait for a device that can run here, without paused ones."""
        return next(self._waiting(is_ours=True), None) is not None

    def waiting_elsewhere(self) -> list[FrozenTrial]:
        """Trials that wait for a device and cannot run here."""
        return list(self._waiting(is_ours=False))

    def _waiting(self, *, is_ours: bool) -> Iterator[FrozenTrial]:
        assert isinstance(self._storage, BufferedStorage)
        counts = self._storage.count_trials(self._study_id)
        paused = self.paused()
        # Optuna searches all trials for a waiting one, although there is usually none.
        if counts[TrialState.WAITING] <= len(paused):
            return
        states = (TrialState.WAITING,)
        for trial in self._storage.get_all_trials(self._study_id, deepcopy=False, states=states):
            if trial.number not in paused and self._may_take(trial) is is_ours:
                yield trial

    def _may_take(self, trial: FrozenTrial) -> bool:
        return self.may_take is None or self.may_take(trial)

    def _pop_waiting_trial_id(self) -> int | None:
        trial_id = self._waiting_trial_id()
        if trial_id is None and self.begin is not None:
            # If there is nothing to start, an ordinary trial would be one too many.
            trial_id = self.begin()
            if trial_id is None:
                raise NoTrialLeft
        return trial_id

    def _waiting_trial_id(self) -> int | None:
        for trial in self._waiting(is_ours=True):
            if self._storage.set_trial_state_values(trial_id_of(trial), TrialState.RUNNING):
                return trial_id_of(trial)
        return None
