"""What a rule that stops trials could gain at most: one that knows how each would end.

    python -m benchmarks.search_cases.ideal_stopping CURVES.npz ... --samplers random --seeds 6

A trial is stopped after its first step unless it would end better than all that were begun so far.
No rule can know that; what `auto` lacks of it is what is left to gain by stopping alone, with the
same sampler. Prints the area under the regret, with the same seeds. See docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import optuna
from optuna.pruners import NopPruner
from optuna.trial import TrialState

from benchmarks.search_quality.judge import Judged, judge
from benchmarks.search_quality.loop import Next, Search, Verdict, play
from benchmarks.search_quality.systems import OptunaSearch, Ours, asha_of_ours, study_of
from benchmarks.search_quality.tasks import Task, read_task
from tuner.search.defaults import sampler_of
from tuner.search_spaces import ParamValue


class IdealStopping:
    """A sampler, and the end of each trial known beforehand.

    Args:
        task: Tells how trials end.
        sampler: By its name in a study file.
        seed: Of the sampler.
    """

    def __init__(self, task: Task, sampler: str, seed: int) -> None:
        parts = {"objectives": {"accuracy": "maximize"}, "sampler": {"name": sampler}}
        config = study_of(task.space, parts, seed)
        self._task = task
        self.inner = OptunaSearch(task.space, sampler_of(config, seed=seed), NopPruner())
        self._best = -math.inf
        self._ends_better: dict[int, bool] = {}

    def next(self) -> Next:
        chosen = self.inner.next()
        end = self._end_of(chosen.params)
        self._ends_better[chosen.trial] = end > self._best
        self._best = max(self._best, end)
        return chosen

    def report(self, trial: int, step: int, value: float, *, held_s: float) -> Verdict:
        verdict = self.inner.report(trial, step, value, held_s=held_s)
        if self._ends_better[trial]:
            return verdict
        self.inner.study.tell(trial, state=TrialState.PRUNED)
        return Verdict.STOP

    def complete(self, trial: int, step: int, value: float) -> None:
        self.inner.complete(trial, step, value)

    def _end_of(self, params: Mapping[str, ParamValue]) -> float:
        return self._task.train(params).values[-1]


def searches(task: Task, sampler: str, seed: int) -> dict[str, Search[float]]:
    named = Ours(sampler={"name": sampler}, pruner={**asha_of_ours(2), "check_order": True})
    return {"asha": named(task, seed), "ideal": IdealStopping(task, sampler, seed)}


def judged(task: Task, search: Search[float], name: str, seed: int, n_medians: float) -> Judged:
    played = play(search, task, n_workers=4, restart_s=5.0, n_medians=n_medians)
    return judge(played, task, system=name, n_workers=4, seed=seed)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search_cases.ideal_stopping")
    parser.add_argument("curves", type=Path, nargs="+")
    parser.add_argument("--samplers", nargs="+", default=["random", "curve_gp"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--medians", type=float, default=10.0, help="time, in whole trainings")
    args = parser.parse_args(argv)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    tasks = [read_task(path) for path in args.curves]
    print("| sampler | stopped by | area | regret at the end | trials |\n|---|---|---|---|---|")
    for sampler in args.samplers:
        found: dict[str, list[Judged]] = {}
        for seed in range(args.seeds):
            for task in tasks:
                for name, search in searches(task, sampler, seed).items():
                    one = judged(task, search, name, seed, args.medians)
                    found.setdefault(name, []).append(one)
        for name, ones in found.items():
            area, end, n = (
                statistics.fmean(getattr(each, key) for each in ones)
                for key in ("area", "end", "n_trials")
            )
            print(f"| {sampler} | {name} | {area:.3f} | {end:.3f} | {n:.0f} |", flush=True)


if __name__ == "__main__":
    main()
