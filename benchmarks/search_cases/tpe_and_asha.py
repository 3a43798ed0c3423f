"""Why Optuna's TPE and ASHA are worse together than random search with the same ASHA.

    python -m benchmarks.search_cases.tpe_and_asha CURVES.npz ... --seeds 10

For each task what TPE takes for the good trials when the time is over: how far from the best their
whole trainings would have ended, beside those of all trials, and how many of them were among the
first that were begun, which ASHA lets pass for want of rivals.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from optuna.pruners import SuccessiveHalvingPruner
from optuna.samplers import TPESampler
from optuna.samplers._tpe.sampler import _split_trials, default_gamma
from optuna.trial import FrozenTrial, TrialState

from benchmarks.common.machine import this_machine
from benchmarks.search_quality.by_rung import RungFedTPE
from benchmarks.search_quality.loop import play
from benchmarks.search_quality.systems import OptunaSearch
from benchmarks.search_quality.tasks import Task, read_task

_RESTART_S, _N_MEDIANS, _N_WORKERS = 5.0, 10.0, 4
_REDUCTION = 3
#: Those that no rung could stop: with fewer than so many at a rung the best of them goes on.
_FIRST = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Good:
    """What a sampler takes for the good trials of one search."""

    #: Mean regret of their whole trainings.
    regret: float
    #: The same of all trials of the search.
    regret_of_all: float
    #: How many of them were among the first that were begun, 0 to 1.
    share_of_first: float
    #: How many trials were begun.
    n_trials: int


def look(task: Task, seed: int, *, is_by_rung: bool) -> Good:
    """Plays one search and looks at what TPE would build its l(x) from in the end."""
    tpe = TPESampler(seed=seed)
    fed = RungFedTPE(tpe, n_least=2 * len(task.space.parameters))
    pruner = SuccessiveHalvingPruner(min_resource=1, reduction_factor=_REDUCTION)
    search = OptunaSearch(task.space, fed if is_by_rung else tpe, pruner)
    play(search, task, n_workers=_N_WORKERS, restart_s=_RESTART_S, n_medians=_N_MEDIANS)
    states = (TrialState.COMPLETE, TrialState.PRUNED)
    trials = search.study.get_trials(deepcopy=False, states=states)
    shown = fed.shown(search.study) if is_by_rung else trials
    good, _ = _split_trials(search.study, shown, default_gamma(len(shown)))
    return Good(
        regret=_mean_regret(task, good),
        regret_of_all=_mean_regret(task, trials),
        share_of_first=statistics.fmean(trial.number < _FIRST for trial in good),
        n_trials=len(trials),
    )


def _mean_regret(task: Task, trials: Sequence[FrozenTrial]) -> float:
    return statistics.fmean(
        task.regret(float(task.table.curve(trial.params).values[-1])) for trial in trials
    )


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search_cases.tpe_and_asha")
    parser.add_argument("curves", type=Path, nargs="+", help="tables of LCBench, as .npz files")
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args(argv)
    print(f"{this_machine()}\n")
    print("| task | TPE is shown | regret of its good trials | of all | good among the first 20 |")
    print("|---|---|---|---|---|")
    for path in args.curves:
        task = read_task(path)
        for is_by_rung, name in ((False, "pruned trials"), (True, "values of one rung")):
            found = [look(task, seed, is_by_rung=is_by_rung) for seed in range(args.seeds)]
            regret = statistics.fmean(each.regret for each in found)
            of_all = statistics.fmean(each.regret_of_all for each in found)
            first = statistics.fmean(each.share_of_first for each in found)
            expected = statistics.fmean(_FIRST / each.n_trials for each in found)
            told = f"{first:.0%} (by chance {expected:.0%})"
            print(f"| {task.name} | {name} | {regret:.2f} | {of_all:.2f} | {told} |", flush=True)


if __name__ == "__main__":
    main()
