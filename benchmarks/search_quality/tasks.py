"""Recorded learning curves to search on, and how good a value is on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from benchmarks.search_quality.loop import Best, Largest, Recorded
from benchmarks.search_quality.spaces import words_of_table
from benchmarks.search_quality.surrogate import SurrogateCurves
from tuner.search_spaces import ParamValue, SearchSpace, parse_space
from tuner.simulate.curves import Curve, Floats, read_table


class Curves(Protocol):
    """Curves of one program's configurations, some of them drawn at random."""

    @property
    def values(self) -> Floats:
        """[n, n_steps], of configurations at random."""

    @property
    def full_seconds(self) -> Floats:
        """[n], how long each takes."""

    def params(self, row: int) -> dict[str, ParamValue]:
        """One of these configurations."""

    def curve(self, params: Mapping[str, ParamValue]) -> Curve:
        """The curve of any configuration."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """One program's curves; values are maximized."""

    name: str
    #: Of its curves; other tasks lie beside it.
    path: Path
    space: SearchSpace
    table: Curves
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
    """Reads a table of curves, as `tuner simulate` takes it, or a task of a surrogate.

    Args:
        path: An `.npz` file, or the number of a task in the folder of a surrogate, such as
            `lcbench/34539`.
    """
    if path.suffix == ".npz":
        space = parse_space(words_of_table(path))
        return _task(path, space, read_table(path, space))
    curves = SurrogateCurves(path.parent, path.name)
    return _task(path, curves.space, curves)


def _task(path: Path, space: SearchSpace, table: Curves) -> Task:
    best, median = float(np.nanmax(table.values)), float(np.nanmedian(table.values[:, -1]))
    if best == median:
        raise ValueError(f"{path}: half of all configurations have the best value, {best}.")
    return Task(
        name=path.stem.removeprefix("lcbench_"),
        path=path,
        space=space,
        table=table,
        best=best,
        median=median,
        full_s=float(np.median(table.full_seconds)),
    )
