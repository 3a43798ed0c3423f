"""The best of the first n configurations, drawn at random and from the sequence that covers.

    python -m benchmarks.search_cases.beginning CURVES.npz ... --seeds 300

Each is trained to its end: no pruner, no model, no workers. Prints a Markdown table of regrets
(1 for the median of random configurations), paired by seed.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.common.machine import this_machine
from benchmarks.search_quality.tasks import Task, read_task
from tuner.search.samplers.covering import value_at
from tuner.search.samplers.sobol import coordinate

COUNTS = (4, 10, 32)


def regrets(task: Task, seed: int, *, covers: bool) -> list[float]:
    """For each of `COUNTS`: the regret of the best of so many configurations.

    Args:
        task: What is trained.
        seed: Of the configurations.
        covers: Whether they are of the sequence; drawn independently at random otherwise.
    """
    parameters, drawn = task.space.parameters, np.random.default_rng(seed)
    best = []
    for number in range(max(COUNTS)):
        places = [
            coordinate(number, place, seed=seed) if covers else float(drawn.random())
            for place in range(len(parameters))
        ]
        params = {
            each.name: value_at(place, each.distribution)
            for each, place in zip(parameters, places, strict=True)
        }
        best.append(max(task.train(params).values))
    return [task.regret(max(best[:n])) for n in COUNTS]


def row(task: Task, n_seeds: int) -> str:
    """A line of the table."""
    ours = [regrets(task, seed, covers=True) for seed in range(n_seeds)]
    drawn = [regrets(task, seed, covers=False) for seed in range(n_seeds)]
    cells = []
    for place in range(len(COUNTS)):
        less = [a[place] - b[place] for a, b in zip(ours, drawn, strict=True)]
        means = (statistics.fmean(each[place] for each in kind) for kind in (ours, drawn))
        error = statistics.stdev(less) / n_seeds**0.5
        cells.append(
            "{:.3f} / {:.3f}".format(*means) + f" ({statistics.fmean(less):+.3f} ± {error:.3f})"
        )
    return f"| {task.name} | {' | '.join(cells)} |"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search_cases.beginning")
    parser.add_argument("curves", type=Path, nargs="+", help="tables of LCBench, as .npz files")
    parser.add_argument("--seeds", type=int, default=300)
    args = parser.parse_args(argv)
    print(f"{this_machine()}\n")
    print(f"| covering / random | {' | '.join(f'first {n}' for n in COUNTS)} |")
    print("|---" * (len(COUNTS) + 1) + "|")
    for path in args.curves:
        print(row(read_task(path), args.seeds), flush=True)


if __name__ == "__main__":
    main()
