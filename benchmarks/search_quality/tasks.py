"""Recorded learning curves to search on, and how good a value is on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.search_quality.loop import Best, Largest, Recorded
from tuner.search_spaces import ParamValue, SearchSpace, parse_space
from tuner.simulate.curves import CurveTable, read_table

#: Of LCBench (Zimmer, Lindauer and Hutter, 2021), as in `names` of the tables.
LCBENCH_SPACE = {
    "batch_size": {"type": "int", "low": 16, "high": 512, "log": True},
    "learning_rate": {"type": "float", "low": 1e-4, "high": 0.1, "log": True},
    "momentum": {"type": "float", "low": 0.1, "high": 0.99},
    "weight_decay": {"type": "float", "low": 1e-5, "high": 0.1},
    "num_layers": {"type": "int", "low": 1, "high": 5},
    "max_units": {"type": "int", "low": 64, "high": 1024, "log": True},
    "max_dropout": {"type": "float", "low": 0.0, "high": 1.0},
}


@dataclass(frozen=True, kw_only=True)
class Task:
    """One program's curves; values are maximized."""

    name: str
    #: Of its curves; other tasks lie beside it.
    path: Path
    space: SearchSpace
    table: CurveTable
    best: float
    #: What a configuration drawn at random ends with, in the median.
    median: float
    #: A whole training, in the median.
    full_s: float

    def train(self, params: Mapping[str, ParamValue]) -> Recorded[float]:
        """What a configuration reports, and when."""
        curve = self.table.curve(params)
        return Recorded(values=[float(each) for each in curve.values], seconds=curve.seconds)

    def new_best(self) -> Best[float]:
        """Where nothing is seen yet."""
        return Largest()

    def regret(self, value: float) -> float:
        """1 for a random configuration or worse, 0 for the best one known."""
        return min(1.0, max(0.0, (self.best - value) / (self.best - self.median)))


def read_task(path: Path) -> Task:
    """Reads a table of curves, as `tuner simulate` takes it."""
    space = parse_space(LCBENCH_SPACE)
    table = read_table(path, space)
    return Task(
        name=path.stem.removeprefix("lcbench_"),
        path=path,
        space=space,
        table=table,
        best=float(np.nanmax(table.values)),
        median=float(np.nanmedian(table.values[:, -1])),
        full_s=float(np.median(table.full_seconds)),
    )
