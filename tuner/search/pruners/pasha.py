"""PASHA by name in a study file: no trial gets more steps than the order of trials needs."""

from __future__ import annotations

from tuner.search.pruners.asha import AshaPruner
from tuner.search.rungs.growing_table import GrowingTable


class PashaPruner(AshaPruner):
    """ASHA whose largest rung grows only while rankings change (Bohdal et al., arXiv:2207.06940).

    Trials pause at the largest rung so far, the second at first, until the trials there are in
    another order than at the rung before, by more than noise. Once the study has no trial left to
    begin and none has completed, the best goes on to its end. Who does not pause (Optuna by itself)
    and trials that save no checkpoints are pruned at rungs as `AshaPruner` does with `mode="stop"`.

    Args:
        min_resource: Steps until the first rung, from 1.
        reduction_factor: One in so many goes on from a rung.

    Raises:
        ValueError: If a value is out of its range.
    """

    def __init__(self, min_resource: int = 1, reduction_factor: int = 3) -> None:
        super().__init__(min_resource, reduction_factor)

    def new_table(self, first: int) -> GrowingTable:
        return GrowingTable(first=first, factor=self._reduction_factor)
