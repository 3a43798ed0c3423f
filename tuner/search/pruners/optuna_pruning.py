"""Applies Optuna's pruners after each report."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from optuna.pruners import BasePruner, WilcoxonPruner

from tuner.domain.messages import Action
from tuner.search.pruners.explain_optuna import why_pruned
from tuner.search.pruners.percentile import RankedPruner, quicker
from tuner.search.scheduler import CONTINUE, Scheduler, SchedulerContext, Verdict
from tuner.store.connection.transactions import Unavailable
from tuner.store.optuna_compat import study_id_of
from tuner.store.optuna_tables.curves.lazy_curve import BATCH_SIZE, read_ahead


class OptunaPruning(Scheduler):
    """Asks an Optuna pruner about each trial of a study with one objective.

    Args:
        pruner: The pruner.
        context: The study.
    """

    def __init__(self, pruner: BasePruner, context: SchedulerContext) -> None:
        self._study = context.study
        self._storage = context.storage
        self._pruner = quicker(pruner)
        # Its steps are parts of the data, best in random order.
        self.has_ordered_steps = not isinstance(pruner, WilcoxonPruner)
        self._objective = context.objectives[0]
        self._n_read_ahead = 0

    def report(
        self, trial_id: int, step: int, values: Sequence[float], *, held_s: float | None
    ) -> Verdict:
        """Prunes a trial according to the pruner."""
        if not self._gives_up(trial_id):
            return CONTINUE
        trial = self._storage.get_trial(trial_id)
        reason = why_pruned(self._study, self._pruner, trial, self._objective)
        return Verdict(action=Action.PRUNE, reason=reason)

    def read_ahead(self) -> bool:
        """Reads some of the curves that the pruner will need.

        Returns:
            Whether there may be more of them.
        """
        if not isinstance(self._pruner, RankedPruner):
            return False
        completed = self._storage.completed(study_id_of(self._study))
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
