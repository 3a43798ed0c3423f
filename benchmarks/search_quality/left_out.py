"""Leave-one-out error of interpolation in a table of curves.

    python -m benchmarks.search_quality.left_out CURVES.npz ...

Each row of a sample is removed from the table, and its last value is predicted from the others: by
the thin plate spline of `tuner simulate`, and by the mean of the five nearest rows, weighted by the
inverse square of the distance (Shepard, 1968). Errors are in units of regret: the distance from the
best row to the median one is 1.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.common.machine import this_machine
from benchmarks.search_quality.spaces import words_of_table
from tuner.search_spaces import SearchSpace, parse_space
from tuner.simulate.curves import CurveTable, Floats, read_table

_N_DRAWN, _N_BEST, _N_NEAR = 300, 100, 5


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The arrays of a table.

    Attributes:
        names: Parameters, in the order of the columns of `x`.
        x: [n, n_names], the configurations.
        values: [n, n_steps], reported values.
        seconds: [n, n_steps], seconds since the start of the training.
        table: The same as a table of curves.
    """

    space: SearchSpace
    names: Sequence[str]
    x: Floats
    values: Floats
    seconds: Floats
    table: CurveTable

    @classmethod
    def read(cls, path: Path) -> Rows:
        space = parse_space(words_of_table(path))
        table = read_table(path, space)
        with np.load(path, allow_pickle=False) as file:
            return cls(
                space=space,
                table=table,
                names=[str(name) for name in file["names"]],
                x=np.asarray(file["x"], dtype=float),
                values=np.asarray(file["value"], dtype=float),
                seconds=np.asarray(file["seconds"], dtype=float),
            )

    def by_spline(self, row: int) -> float:
        """Predicts the last value of a row from the others, by a spline."""
        others = np.arange(len(self.x)) != row
        left = CurveTable(
            self.space,
            names=self.names,
            x=self.x[others],
            values=self.values[others],
            seconds=self.seconds[others],
        )
        return float(left.curve(self.table.params(row)).values[-1])

    def by_mean(self, row: int) -> float:
        """Predicts it from the five nearest rows, by their mean."""
        points = self.table.points
        squares = ((points - points[row]) ** 2).sum(axis=1)
        near = np.argsort(squares)[1 : _N_NEAR + 1]
        weights = 1.0 / (squares[near] + 1e-12)
        return float(np.average(self.values[near, -1], weights=weights))


def report(path: Path) -> list[str]:
    """Formats the errors of a table as two rows of Markdown."""
    rows = Rows.read(path)
    ends = rows.values[:, -1]
    unit = float(np.nanmax(rows.values) - np.nanmedian(ends))
    by_end = np.argsort(-np.nan_to_num(ends, nan=-np.inf))
    drawn = np.random.default_rng(0).choice(len(ends), min(_N_DRAWN, len(ends)), replace=False)
    best = by_end[: min(_N_BEST, len(ends) // 50)]
    lines = []
    for name, guess in (("spline through 64", rows.by_spline), ("mean of 5", rows.by_mean)):
        errors = np.array([guess(int(row)) - ends[row] for row in drawn]) / unit
        of_best = np.array([guess(int(row)) - ends[row] for row in best]) / unit
        means = [np.nanmean(np.abs(errors)), np.nanmean(of_best), np.nanmean(np.abs(of_best))]
        lines.append(
            f"| {path.stem} | {name} | {means[0]:.3f} | {means[1]:+.3f} | {means[2]:.3f} |"
        )
    return lines


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search_quality.left_out")
    parser.add_argument("curves", type=Path, nargs="+", help="tables of LCBench, as .npz files")
    args = parser.parse_args(argv)
    print(f"{this_machine()}\n")
    print(
        "| table | by | error, mean | error of the best, signed | the same, mean |\n"
        + "|---" * 5
        + "|"
    )
    for path in args.curves:
        print("\n".join(report(path)), flush=True)


if __name__ == "__main__":
    main()
