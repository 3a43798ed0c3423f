"""Recorded curves with a second objective beside them, and how good a front is on them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from optuna._hypervolume import compute_hypervolume
from optuna.study import StudyDirection

from benchmarks.search_quality.loop import Best, Bettered, Recorded
from benchmarks.search_quality.spaces import LCBENCH_SPACE
from benchmarks.search_quality.spoilt.spaces import conditional
from benchmarks.search_quality.tasks import Curves, read_task
from tuner.domain.pareto_front import ParetoFront
from tuner.search_spaces import ParamValue, SearchSpace
from tuner.simulate.curves import Curve

Pair = tuple[float, float]
"""Accuracy, which is maximized, and a cost, which is minimized."""
CostOf = Callable[[Mapping[str, ParamValue], Curve], float]

#: Of the networks: the recordings do not tell how many features and classes a task has.
_N_INPUTS, _N_OUTPUTS = 20, 2


def weights_of(params: Mapping[str, ParamValue], curve: Curve) -> float:
    """log10 of the weights of a configuration's network, a funnel from `max_units` to the outputs.

    What a model costs where it is used follows from it (memory, latency), it is known before the
    first step, and depends on two parameters that accuracy depends on, too.
    """
    n_layers, widest = params["num_layers"], params["max_units"]
    assert isinstance(n_layers, int)
    assert isinstance(widest, int)
    narrower = (widest - _N_OUTPUTS) / n_layers
    widths = [_N_INPUTS, *(widest - k * narrower for k in range(n_layers)), _N_OUTPUTS]
    return math.log10(sum((a + 1) * b for a, b in itertools.pairwise(widths)))


def seconds_of(params: Mapping[str, ParamValue], curve: Curve) -> float:
    """log10 of the seconds of a step, as recorded."""
    return math.log10(curve.seconds[-1] / curve.n_steps)


COSTS: Mapping[str, CostOf] = {"weights": weights_of, "seconds": seconds_of}


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """Where a front counts: better than a median accuracy, cheaper than the dearest."""

    worst: Pair
    best: Pair

    def share(self, pairs: Sequence[Pair]) -> float:
        """Of its area what the pairs dominate."""
        losses = [
            [(at - best) / (worst - best) for at, best, worst in zip(*each, strict=True)]
            for each in ((pair, self.best, self.worst) for pair in pairs)
        ]
        inside = [each for each in losses if max(each) < 1.0]
        return float(compute_hypervolume(np.array(inside), np.ones(2))) if inside else 0.0


@dataclass(slots=True)
class Front:
    """What dominates most: the best of two objectives."""

    box: Box
    steps: list[Bettered] = field(default_factory=list)
    _front: ParetoFront = field(
        default_factory=lambda: ParetoFront((StudyDirection.MAXIMIZE, StudyDirection.MINIMIZE))
    )
    _pairs: list[Pair] = field(default_factory=list)

    def take(self, at_s: float, value: Pair) -> None:
        if not self._front.add(value):
            return
        self._pairs.append(value)
        share = self.box.share(self._pairs)
        if not self.steps or share > self.steps[-1].value:
            self.steps.append(Bettered(at_s=at_s, value=share))


@dataclass(frozen=True, kw_only=True)
class CostTask:
    """One program's curves with a cost of each configuration."""

    name: str
    space: SearchSpace
    table: Curves
    cost: CostOf
    box: Box
    #: What the front of the whole table dominates.
    best: float
    #: A whole training, in the median.
    full_s: float
    #: What a parameter has that a configuration leaves out.
    absent: Mapping[str, ParamValue] = field(default_factory=dict)

    def train(self, params: Mapping[str, ParamValue]) -> Recorded[Pair]:
        """What a configuration reports, and when."""
        if self.absent:
            known = {**self.absent, **params}
            params = {name: known[name] for name in LCBENCH_SPACE}
        curve = self.table.curve(params)
        cost = self.cost(params, curve)
        values = [(float(each), cost) for each in curve.values]
        return Recorded(values=values, seconds=curve.seconds)

    def new_best(self) -> Best[Pair]:
        """Where nothing is seen yet."""
        return Front(self.box)

    def regret(self, value: float) -> float:
        """1 where no point is better than a median configuration, 0 for the table's own front."""
        return min(1.0, max(0.0, 1.0 - value / self.best))


def read_cost_task(path: Path, second: str, *, has_conditions: bool = False) -> CostTask:
    """Reads a table of curves.

    Args:
        path: Of the table.
        second: The second objective, of `COSTS`.
        has_conditions: Whether some parameters exist only where a choice says so.
    """
    if has_conditions:
        plain, spoilt = read_cost_task(path, second), conditional(read_task(path))
        name = f"{plain.name}, conditional"
        return replace(plain, name=name, space=spoilt.space, absent=spoilt.absent)
    task, cost = read_task(path), COSTS[second]
    values = task.table.values
    costs = []
    for row in range(len(values)):
        params = task.table.params(row)
        costs.append(cost(params, task.table.curve(params)))
    box = Box(worst=(task.median, max(costs)), best=(task.best, min(costs)))
    highest = np.nanmax(values, axis=1)
    front = box.share(list(zip(highest.tolist(), costs, strict=True)))
    return CostTask(
        name=f"{task.name}, {second}",
        space=task.space,
        table=task.table,
        cost=cost,
        box=box,
        best=front,
        full_s=task.full_s,
    )
