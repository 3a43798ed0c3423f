"""Numbers of trials by state."""

from __future__ import annotations

from collections import Counter

from optuna.trial import TrialState

from tuner.search.scheduler import Scheduler
from tuner.search.trial_attributes.infeasible import InfeasibleTrials
from tuner.store.optuna_tables.storage import BufferedStorage


class TrialCounts:
    """Counts of a study's trials, as they are at the time of the call.

    Args:
        storage: Holds the study.
        study_id: Its id in the storage.
        scheduler: Knows which trials are paused.
        infeasible: The trials that are marked as infeasible.
    """

    def __init__(
        self,
        storage: BufferedStorage,
        study_id: int,
        scheduler: Scheduler,
        infeasible: InfeasibleTrials,
    ) -> None:
        self._storage = storage
        self._study_id = study_id
        self._scheduler = scheduler
        self._infeasible = infeasible

    def by_state(self) -> Counter[TrialState]:
        """Trials by state; paused trials, which Optuna counts as waiting, are left out."""
        counts = Counter(self._storage.count_trials(self._study_id))
        counts[TrialState.WAITING] -= self.n_paused
        return counts

    @property
    def n_paused(self) -> int:
        """Trials that wait at a rung or in a population until it is their turn."""
        return len(self._scheduler.paused)

    @property
    def n_waiting(self) -> int:
        """Trials that wait for a device, here or elsewhere."""
        return self.by_state()[TrialState.WAITING]

    @property
    def n_begun(self) -> int:
        """Trials that ever had a device and have not been put back."""
        return sum(self._storage.count_trials(self._study_id).values()) - self.n_waiting

    @property
    def n_pruned(self) -> int:
        """Trials that were pruned for their values; Optuna counts infeasible ones among them."""
        return self.by_state()[TrialState.PRUNED] - self.n_infeasible

    @property
    def n_failed(self) -> int:
        """Trials without a value, infeasible ones included."""
        return self.by_state()[TrialState.FAIL] + self.n_infeasible

    @property
    def n_infeasible(self) -> int:
        """Trials that are marked as infeasible."""
        return len(self._infeasible)

    @property
    def has_ended_well(self) -> bool:
        """Whether any trial has completed, or was pruned for its values."""
        return self.by_state()[TrialState.COMPLETE] > 0 or self.n_pruned > 0
