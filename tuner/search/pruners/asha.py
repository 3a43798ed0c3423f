"""ASHA by name in a study file: stops trials at rungs, or pauses them and promotes the best."""

from __future__ import annotations

from typing import Literal, get_args

from optuna.pruners import SuccessiveHalvingPruner

from tuner.search.rungs.table import RungTable

Mode = Literal["promote", "stop"]


class AshaPruner(SuccessiveHalvingPruner):
    """Asynchronous successive halving (Li et al., arXiv:1810.05934).

    With `mode="promote"` a trial pauses at each rung and keeps its checkpoint until it is among the
    best `1 / reduction_factor` of those that reached the rung. Trials that cannot pause (under
    Optuna alone, or without checkpoints) are pruned at the rung as with `mode="stop"`, which is
    Optuna's own rule.

    Args:
        min_resource: Steps until the first rung, from 1. `"auto"` is 1, and with `mode="stop"` a
            hundredth of the steps of the first trial that completes, as in Optuna.
        reduction_factor: One of this many trials continues from a rung.
        min_early_stopping_rate: Number of rungs to skip at the beginning.
        bootstrap_count: With `mode="stop"`: trials that must reach a rung before any passes it.
        mode: `promote` or `stop`.
        check_order: Compares the ranking of trials at each rung with their later ranking. If a
            rung's ranking is contradicted, no trial ends or pauses there, and `curve_gp` does not
            learn from reports until there. For the check, some quick trials that a rung would end
            are trained on to the next rung: one of the first, one of ten and then ever fewer.
            Once a third of those that passed have become worse, three are trained to their end.
            Where eight trials or more train at the same time, one in eight of the first is
            trained to its end. A report that passes several rungs is compared at the last of them
            only, not at each. With `mode="stop"`, once the rankings of three trials agree, a
            trial that left a rung is compared there again, from halfway to the next one on, with
            those that came since: the first to come passes, however weak it is. If many trials
            have the worst value at a rung, as many that learn nothing do, they do not all
            continue, but so many that the fraction is kept. With one objective only.

    Raises:
        ValueError: If a value is out of its range.
    """

    has_brackets = False
    has_slices = False
    max_resource: int | None = None

    def __init__(
        self,
        min_resource: str | int = "auto",
        reduction_factor: int = 3,
        min_early_stopping_rate: int = 0,
        bootstrap_count: int = 0,
        mode: str = "promote",
        check_order: bool = False,
    ) -> None:
        if mode not in get_args(Mode):
            raise ValueError(f"mode is {mode!r}, but must be promote or stop.")
        if mode == "promote" and min_resource == "auto":
            min_resource = 1
        super().__init__(min_resource, reduction_factor, min_early_stopping_rate, bootstrap_count)
        self.reduction_factor = reduction_factor
        self.promotes = mode == "promote"
        self.bootstrap_count = 0 if self.promotes else bootstrap_count
        self.checks_order = check_order

    def new_table(self, first: int) -> RungTable:
        """Rungs from a step on."""
        table = RungTable(first=first, factor=self._reduction_factor)
        table.limits_worst = self.checks_order
        return table

    def is_first_rung(self, step: int) -> bool:
        """Whether this is the step at which trials are compared first."""
        return step == self.first_rung(0, None)

    @property
    def least_rung(self) -> int:
        """The first step at which trials are compared; 0 while that follows from the trials."""
        if self._min_resource is None:
            return 0
        return self.first_rung(0, None)

    def first_rung(self, number: int, length: int | None) -> int:
        """The step at which trials are compared first; for all the same."""
        least = self._min_resource or 1
        return int(least * self._reduction_factor**self._min_early_stopping_rate)
