"""Optuna's pruners, asked after each report."""

from __future__ import annotations

import warnings

import optuna
from optuna.pruners import BasePruner

from tuner.messages import Action
from tuner.search.decision import Decision
from tuner.search.pruners.explain import why_pruned
from tuner.search.pruners.percentile import RankedPruner, quicker
from tuner.store.connection.transactions import Unavailable
from tuner.store.optuna_tables.lazy_curve import BATCH_SIZE, read_ahead
from tuner.store.optuna_tables.storage import BufferedStorage


class Pruning:
    """Asks a pruner about the trials of one study with one objective.

    Args:
        study: The study.
        storage: Holds it.
        pruner: Of Optuna.
        objective: Its name, for people.
    """

    def __init__(
        self, study: optuna.Study, storage: BufferedStorage, pruner: BasePruner, objective: str
    ) -> None:
        self._study = study
        self._storage = storage
        self._pruner = quicker(pruner)
        self._objective = objective
        self._n_read_ahead = 0

    def decide(self, trial_id: int) -> Decision:
        """What becomes of a trial after its last report."""
        if not self._gives_up(trial_id):
            return Decision(action=Action.CONTINUE)
        trial = self._storage.get_trial(trial_id)
        reason = why_pruned(self._study, self._pruner, trial, self._objective)
        return Decision(action=Action.PRUNE, reason=reason)

    def read_ahead(self) -> bool:
        """Reads some of the curves that the pruner is going to look at.

        Returns:
            Whether there may be more of them.
        """
        if not isinstance(self._pruner, RankedPruner):
            return False
        completed = self._storage.completed(self._study._study_id)
        some = completed[self._n_read_ahead : self._n_read_ahead + BATCH_SIZE]
        try:
            read_ahead([trial.intermediate_values for trial in some])
        except Unavailable:
            return False  # The next call finds out whether it is there again.
        self._n_read_ahead += len(some)
        return bool(some)

    def _gives_up(self, trial_id: int) -> bool:
        trial = self._storage.get_trial(trial_id)
        if isinstance(self._pruner, RankedPruner):
            return self._pruner.prune(self._study, trial)
        with warnings.catch_warnings():
            # NumPy's, about a curve that is all NaN; the pruner prunes it.
            warnings.simplefilter("ignore", RuntimeWarning)
            return self._pruner.prune(self._study, trial)
