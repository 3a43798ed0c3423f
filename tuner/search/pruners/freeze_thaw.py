"""The freeze-thaw pruner: a curve model decides which trial trains next."""

from __future__ import annotations

import math

import optuna
from optuna.pruners import BasePruner
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from tuner.search.rungs.curve_model import CurveModel
from tuner.search.rungs.freeze_thaw_table import SliceTable
from tuner.search.rungs.table import known_length, rung_key
from tuner.store.optuna_compat import storage_of, trial_id_of


class FreezeThawPruner(BasePruner):
    """Trains in slices, the trial worth most per second first (Swersky et al., arXiv:1406.3896).

    After each slice a trial continues if a Gaussian process over configuration and step expects a
    larger improvement of the best value per second from it than from any paused trial and from a
    new one (see `tuner.search.rungs.freeze_thaw_table`). Otherwise it pauses, keeps its checkpoint,
    and the trial with the highest worth gets its device. Trials that cannot pause (under Optuna
    alone, or without checkpoints) are pruned if a new trial is worth more.

    Args:
        min_resource: Steps of the first slice, from 1.
        growth: Ratio of a slice's last step to that of the slice before, from 2.
        max_resource: Steps of a whole trial. With `"auto"` it is known once a trial has completed.
        seed: Seed of the configurations that trials are compared with; by default the study's.

    Raises:
        ValueError: If a value is out of its range.
    """

    promotes = True
    has_brackets = False
    has_slices = True
    checks_order = False
    bootstrap_count = 0

    def __init__(
        self,
        min_resource: int = 1,
        growth: int = 2,
        max_resource: str | int = "auto",
        seed: int = 0,
    ) -> None:
        if min_resource < 1:
            raise ValueError(f"min_resource is {min_resource}, but must be 1 or more.")
        if growth < 2:
            raise ValueError(f"growth is {growth}, but must be 2 or more.")
        self.max_resource = known_length(max_resource, min_resource)
        self.min_resource = min_resource
        self.reduction_factor = growth
        self._seed = seed

    @staticmethod
    def load_model() -> None:
        """Imports the model in advance, which takes seconds."""
        CurveModel.load()

    def new_table(self, first: int) -> SliceTable:
        """The slices of all trials."""
        return SliceTable(first=first, factor=self.reduction_factor, seed=self._seed)

    def is_first_rung(self, step: int) -> bool:
        """Whether the first slice ends at a step."""
        return step == self.min_resource

    @property
    def least_rung(self) -> int:
        """The first step at which trials are compared."""
        return self.min_resource

    def first_rung(self, number: int, length: int | None) -> int:
        """End of the first slice, the same for all."""
        return self.min_resource

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        step = trial.last_step
        if step is None or step < self.min_resource:
            return False
        trials = study.get_trials(deepcopy=False)
        sign = -1.0 if study.direction is StudyDirection.MAXIMIZE else 1.0
        table = _table_of(self, [each for each in trials if each.number != trial.number], sign)
        table.trial_of = lambda number: trials[number]
        rung = table.rung_at(step)
        if rung_key(rung) in trial.system_attrs:
            return False
        value = trial.intermediate_values[step]
        for each in range(rung + 1):
            if rung_key(each) not in trial.system_attrs:
                storage_of(study).set_trial_system_attr(trial_id_of(trial), rung_key(each), value)
            noted = trial.system_attrs.get(rung_key(each), value)
            table.come(trial.number, each, _loss(noted, sign))
        if math.isnan(value):
            return True
        return not table.is_end(rung) and not table.standing(trial.number, rung).goes_on


def _table_of(pruner: FreezeThawPruner, trials: list[FrozenTrial], sign: float) -> SliceTable:
    """A table of trials that cannot pause."""
    table = pruner.new_table(pruner.min_resource)
    table.is_final = True
    table.length = pruner.max_resource
    for trial in trials:
        rung = 0
        while (value := trial.system_attrs.get(rung_key(rung))) is not None:
            table.come(trial.number, rung, _loss(value, sign))
            rung += 1
        if trial.state is TrialState.COMPLETE and trial.value is not None and trial.last_step:
            table.completes(trial.number, trial.last_step, sign * trial.value)
            table.length = max(table.length or 0, trial.last_step)
    return table


def _loss(value: float, sign: float) -> float:
    return math.inf if math.isnan(value) else sign * value
