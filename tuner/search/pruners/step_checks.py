"""Checks of a program's step numbers."""

from __future__ import annotations

from optuna.pruners import BasePruner

from tuner.search.population.pbt import PbtPruner
from tuner.search.pruners.asha import AshaPruner
from tuner.search.pruners.freeze_thaw import FreezeThawPruner
from tuner.search.pruners.hyperband import AsyncHyperbandPruner
from tuner.store.optuna_tables.storage import BufferedStorage


class StepCounts:
    """Tracks resumed trials, and detects programs that restart their step count.

    Args:
        storage: Holds the curves.
        pruner: The study's pruner.
    """

    def __init__(self, storage: BufferedStorage, pruner: BasePruner) -> None:
        self._storage = storage
        self._pruner = pruner
        self._resumed: set[int] = set()
        self._cut_short: set[int] = set()
        #: By trial of several objectives, of which the storage has no curve: the least and the
        #: largest step that was reported in this start.
        self._spans: dict[int, tuple[int, int]] = {}
        self._has_told_of_rungs = False

    def resumed(self, trial_id: int) -> None:
        """A trial that was paused continues from its state."""
        self._resumed.add(trial_id)

    def starts_over(self, trial_id: int) -> None:
        """Records that a trial rightly restarts at its first step, without a checkpoint."""
        self._resumed.discard(trial_id)

    def counts_anew(self, trial_id: int, step: int) -> bool:
        """Whether the program of a resumed trial restarts its step count despite its checkpoint.

        Args:
            trial_id: The trial.
            step: Its first reported step since.
        """
        curve = self._storage.get_trial(trial_id).intermediate_values
        first, last = (min(curve), max(curve)) if curve else self._spans.get(trial_id, (0, 0))
        if trial_id not in self._resumed or not step <= first < last:
            return False
        self._cut_short.add(trial_id)
        return True

    def note(self, trial_id: int, step: int) -> None:
        """A trial of several objectives has reported a step."""
        first, last = self._spans.get(trial_id, (step, step))
        self._spans[trial_id] = (min(first, step), max(last, step))

    def is_cut_short(self, trial_id: int) -> bool:
        """Whether a trial's curve ends before the trial does."""
        return trial_id in self._cut_short

    def take_unreached_rung(self, trial_id: int) -> str:
        """A notice if the first completed trial reached no rung; returned once."""
        curve = self._storage.get_trial(trial_id).intermediate_values
        if self._has_told_of_rungs or not curve:
            return ""
        ours = AshaPruner | AsyncHyperbandPruner | FreezeThawPruner | PbtPruner
        if not isinstance(self._pruner, ours):
            return ""
        self._has_told_of_rungs = True
        first = self._pruner.least_rung
        if max(curve) >= first:
            return ""
        number = self._storage.get_trial_number_from_id(trial_id)
        if len(curve) == 1:
            return (
                f"Trial {number} reported at a single step, {max(curve)}, so it was not compared "
                "with others while it ran. To have weak trials stopped early, report after each "
                "epoch, with a step that counts up; otherwise write pruner: none."
            )
        argument = "interval" if isinstance(self._pruner, PbtPruner) else "min_resource"
        return (
            f"Trial {number} completed at step {max(curve)}, before the first rung at step "
            f"{first}, so it was not compared with others. Set a smaller {argument} (pruner)."
        )
