"""The registry of schedulers: which one works for which pruner.

To add one, write a `Scheduler` (see `tuner/search/scheduler.py`) and add a line to `_FACTORIES`.
A pruner of another package brings its own by having a method `make_scheduler(context)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from optuna.pruners import BasePruner, NopPruner

from tuner.search.population.pbt import PbtPruner
from tuner.search.population.population import Population
from tuner.search.pruners.asha import AshaPruner
from tuner.search.pruners.freeze_thaw import FreezeThawPruner
from tuner.search.pruners.hyperband import AsyncHyperbandPruner
from tuner.search.pruners.optuna_pruning import OptunaPruning
from tuner.search.rungs.promotion import Promotion
from tuner.search.scheduler import BringsScheduler, NullScheduler, Scheduler, SchedulerContext


def make_scheduler(pruner: BasePruner, context: SchedulerContext) -> Scheduler:
    """Makes the scheduler for a pruner, by its class or the nearest base class."""
    if isinstance(pruner, BringsScheduler):
        return pruner.make_scheduler(context)
    factory = next(_FACTORIES[each] for each in type(pruner).__mro__ if each in _FACTORIES)
    return factory(pruner, context)


def _none(pruner: BasePruner, context: SchedulerContext) -> Scheduler:
    return NullScheduler()


def _optuna(pruner: BasePruner, context: SchedulerContext) -> Scheduler:
    # Optuna's pruners compare one value.
    if len(context.objectives) > 1:
        return NullScheduler()
    return OptunaPruning(pruner, context)


def _halving(pruner: AshaPruner | AsyncHyperbandPruner, context: SchedulerContext) -> Scheduler:
    # Optuna's pruner knows its first rung only when a trial has completed.
    if not pruner.least_rung and len(context.objectives) == 1:
        return OptunaPruning(pruner, context)
    return Promotion(pruner, context)


def _slices(pruner: FreezeThawPruner, context: SchedulerContext) -> Scheduler:
    pruner.load_model()
    return Promotion(pruner, context)


#: By the class of the pruner. Any, because mypy takes no abstract class for a `type[T]`, and each
#: factory takes a pruner of its own class.
_FACTORIES: Mapping[type[Any], Callable[[Any, SchedulerContext], Scheduler]] = {
    BasePruner: _optuna,
    NopPruner: _none,
    AshaPruner: _halving,
    AsyncHyperbandPruner: _halving,
    FreezeThawPruner: _slices,
    PbtPruner: Population,
}
