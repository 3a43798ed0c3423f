"""Where a search loses: mean regret in each part of the time, beside searches that know more.

    python -m benchmarks.search_cases.parts_of_time CURVES.npz ... --seeds 8

What knows more draws each configuration, the first included, from the best share of the table,
under the pruner of `auto`: how good a search could be if it knew from the beginning what it can
only learn. Prints a Markdown table. See docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import RandomSampler
from optuna.trial import FrozenTrial

from benchmarks.common.machine import this_machine
from benchmarks.search_quality.judge import Judged, judge
from benchmarks.search_quality.loop import Search, play
from benchmarks.search_quality.systems import AUTO, OptunaSearch, seeded, study_of
from benchmarks.search_quality.tasks import Task, read_task
from tuner.search.defaults import pruner_of

PEER = "Optuna, random + ASHA"
ENDS = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)


class BestShare(RandomSampler):
    """Draws from the configurations of a task that end best.

    Args:
        task: The task, which tells how they end.
        share: Fraction of its configurations.
        seed: Seed of the draws.
    """

    def __init__(self, task: Task, share: float, seed: int) -> None:
        super().__init__(seed=seed)
        order = np.argsort(-np.nan_to_num(task.table.values[:, -1], nan=-np.inf))
        self._task, self._best = task, order[: max(1, int(share * len(order)))]
        self._draws = np.random.default_rng(seed)

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return {each.name: each.distribution for each in self._task.space.parameters}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self._task.table.params(int(self._draws.choice(self._best)))


def search_of(system: str, task: Task, seed: int) -> Search[float]:
    """A search by its name; a number is the share of configurations that it draws from."""
    if system in (AUTO, PEER):
        return seeded(system, task, seed)
    config = study_of(task.space, {"objectives": {"accuracy": "maximize"}}, seed)
    return OptunaSearch(task.space, BestShare(task, float(system), seed), pruner_of(config))


def mean_regret(judged: Judged, begin: float, end: float) -> float:
    """The mean regret between two shares of the time."""
    ends = [*(at for at, _ in judged.steps[1:]), 1.0]
    return sum(
        regret * max(0.0, min(until, end) - max(at, begin))
        for (at, regret), until in zip(judged.steps, ends, strict=True)
    ) / (end - begin)


def row(system: str, judged: Sequence[Judged]) -> str:
    """A line of the table."""
    parts = zip((0.0, *ENDS), ENDS, strict=False)
    cells = [statistics.fmean(mean_regret(each, *part) for each in judged) for part in parts]
    areas = [each.area for each in judged]
    cells += [statistics.fmean(areas), statistics.fmean(each.end for each in judged)]
    name = system if system in (AUTO, PEER) else f"drawn from the best {float(system):.0%}"
    return f"| {name} | {' | '.join(f'{each:.3f}' for each in cells)} |"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search_cases.parts_of_time")
    parser.add_argument("curves", type=Path, nargs="+", help="tables of LCBench, as .npz files")
    parser.add_argument("--systems", nargs="+", default=[PEER, AUTO, "0.5", "0.2", "0.05"])
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--workers", type=int, default=4)
    args = parser.parse_args(argv)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    tasks = [read_task(path) for path in args.curves]
    ends = " | ".join(f"until {end:.3g}" for end in ENDS)
    print(f"{this_machine()}\n\n| search | {ends} | area | end |\n{'|---' * (len(ENDS) + 3)}|")
    for system in args.systems:
        judged = []
        for seed in range(args.seeds):
            for task in tasks:
                search, n = search_of(system, task, seed), args.workers
                played = play(search, task, n_workers=n, restart_s=5.0, n_medians=10.0)
                judged.append(judge(played, task, system=system, n_workers=n, seed=seed))
        print(row(system, judged), flush=True)


if __name__ == "__main__":
    main()
