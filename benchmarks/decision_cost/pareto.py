"""What a decision at a rung of several objectives takes, by how many trials came there.

    python -m benchmarks.decision_cost.pareto
    python -m benchmarks.decision_cost.pareto --trials 1000 10000 --decisions 200

Prints a Markdown table: processor time of the rungs' table alone, see docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from statistics import median

import numpy as np

from benchmarks.common.machine import this_machine
from tuner.search.rungs.fronts import Losses
from tuner.search.rungs.pareto_table import ParetoTable


def _independent(rng: np.random.Generator, shape: tuple[int, int]) -> Losses:
    return rng.normal(size=shape)


def _alike(rng: np.random.Generator, shape: tuple[int, int]) -> Losses:
    """Who is good in one objective is good in the others: many small fronts."""
    return 0.3 * rng.normal(size=shape) + rng.normal(size=(shape[0], 1))


def _one_front(rng: np.random.Generator, shape: tuple[int, int]) -> Losses:
    """On a sphere: nobody is better than anybody."""
    directions = np.abs(rng.normal(size=shape))
    points: Losses = -directions / np.linalg.norm(directions, axis=1, keepdims=True)
    return points


KINDS: Mapping[str, Callable[[np.random.Generator, tuple[int, int]], Losses]] = {
    "independent": _independent,
    "alike": _alike,
    "all on one front": _one_front,
}


@dataclass(slots=True, kw_only=True)
class Timed:
    """Milliseconds of the processor."""

    #: The first look, once: all that are stored are sorted.
    first: float = 0.0
    #: A report that brings a trial to the rung, and how it stands there.
    judged: list[float] = field(default_factory=list)
    #: Who goes on next.
    promoted: list[float] = field(default_factory=list)


def time_decisions(
    kind: str, n_trials: int, n_objectives: int, *, n_decisions: int, seed: int
) -> Timed:
    """Trials come to a rung where others wait already, and after each one that has earned it goes.

    Args:
        kind: Of `KINDS`.
        n_trials: That wait there at the start.
        n_objectives: From 2.
        n_decisions: As many come then.
        seed: Of what they come with.
    """
    shape = (n_trials + n_decisions, n_objectives)
    losses = KINDS[kind](np.random.default_rng(seed), shape).tolist()
    table, timed = ParetoTable(first=1, factor=3), Timed()

    def promote() -> None:
        if (number := next(table.promotable(), None)) is not None:
            table.unpause(number)

    def judge(number: int) -> None:
        table.come_with(number, 0, losses[number])
        table.standing(number, 0)

    for number in range(n_trials):
        table.come_with(number, 0, losses[number])
        table.pause(number)
    timed.first = _ms_of(promote)
    for number in range(n_trials, n_trials + n_decisions):
        timed.judged.append(_ms_of(lambda: judge(number)))  # noqa: B023 - called at once
        table.pause(number)
        timed.promoted.append(_ms_of(promote))
    return timed


def _ms_of(work: Callable[[], None]) -> float:
    began_s = time.process_time()
    work()
    return (time.process_time() - began_s) * 1e3


def row(kind: str, n_trials: int, n_objectives: int, timed: Timed) -> str:
    cells = (
        f"{n_trials:,}",
        str(n_objectives),
        kind,
        *(f"{median(each):.1f} / {max(each):.1f}" for each in (timed.judged, timed.promoted)),
        f"{timed.first:.0f}",
    )
    return f"| {' | '.join(cells)} |"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decision_cost.pareto")
    parser.add_argument("--trials", type=int, nargs="+", default=[10_000])
    parser.add_argument("--objectives", type=int, nargs="+", default=[2, 3])
    parser.add_argument("--decisions", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    print(f"{datetime.now(UTC):%Y-%m-%d}, {this_machine()}\n")
    print(
        "| trials | objectives | values | a report, median / longest ms | promotion | first sort |"
    )
    print("|---|---|---|---|---|---|")
    for n_trials in args.trials:
        for n_objectives in args.objectives:
            for kind in KINDS:
                timed = time_decisions(
                    kind, n_trials, n_objectives, n_decisions=args.decisions, seed=args.seed
                )
                print(row(kind, n_trials, n_objectives, timed), flush=True)


if __name__ == "__main__":
    main()
