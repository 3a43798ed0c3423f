"""What a study does with the last of its time, by the rule for the last trials: same seeds, paired.

    python -m benchmarks.search_cases.budget_end CURVES.npz ... --seeds 6 --sampler random

Plays whole studies with the dispatcher's own rules on a virtual clock, with the pruner that `auto`
picks. See docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import optuna

from benchmarks.search_quality.systems import study_of
from benchmarks.search_quality.tasks import Task, read_task
from tuner.dispatch.supply.budget_end import BudgetEnd
from tuner.domain.budget import Budget, Spent
from tuner.search.defaults import choose
from tuner.simulate.run import Simulated, simulate

Rule: TypeAlias = Callable[..., str | None]
_PRESENT = BudgetEnd.too_little


def _as_completed(
    end: BudgetEnd, budget: Budget, spent: Spent, held_s: Iterable[float], *, times: float = 1.0
) -> str | None:
    """What fits is a whole training, as it was until 2026-11-25."""
    return end.too_little_for(times, budget, spent, held_s)


def _always(*_: object, **__: object) -> None:
    """Everything fits until nothing is left."""


RULES: Mapping[str, Rule] = {"completed": _as_completed, "ended": _PRESENT, "all": _always}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One study; times as shares of its budget."""

    #: Regret when 0.88 of the time is over, at its end, and when the last trial ended.
    before: float
    at_limit: float
    after: float
    #: Of the devices, by all trials.
    used: float
    makespan: float
    n_trials: int


def play_one(task: Task, *, sampler: str, seed: int, rule: Rule, n_devices: int) -> Figures:
    parts = {"objectives": {"accuracy": "maximize"}, "sampler": {"name": sampler}}
    config = study_of(task.space, parts, seed)
    limit_s = 10.0 * task.full_s
    BudgetEnd.too_little = rule  # type: ignore[method-assign]
    try:
        played = simulate(
            config,
            task.table,
            pruner=choose(config).pruner,
            seed=seed,
            n_devices=n_devices,
            restart_s=5.0,
            budget=Budget(time_s=limit_s),
        )
    finally:
        BudgetEnd.too_little = _PRESENT  # type: ignore[method-assign]
    return Figures(
        before=_regret(task, played, 0.88 * limit_s),
        at_limit=_regret(task, played, limit_s),
        after=_regret(task, played, math.inf),
        used=played.device_s / n_devices / limit_s,
        makespan=played.makespan_s / limit_s,
        n_trials=played.n_trials,
    )


def _regret(task: Task, played: Simulated, until_s: float) -> float:
    values = [each.value for each in played.best if each.at_s <= until_s]
    return task.regret(max(values, default=-math.inf))


def table(found: Mapping[str, Sequence[Figures]]) -> Iterator[str]:
    names = (
        "what must fit",
        "regret at 0.88",
        "at the limit",
        "of all",
        "devices",
        "ends",
        "trials",
    )
    yield f"| {' | '.join(names)} |"
    yield "|---" * len(names) + "|"
    for rule, figures in found.items():
        mean = {
            name: statistics.fmean(getattr(each, name) for each in figures)
            for name in Figures.__slots__
        }
        yield (
            f"| {rule} | {mean['before']:.4f} | {mean['at_limit']:.4f} | {mean['after']:.4f} "
            f"| {mean['used']:.3f} | {mean['makespan']:.3f} | {mean['n_trials']:.0f} |"
        )
    first, *others = found
    for other in others:
        pairs = zip(found[other], found[first], strict=True)
        apart = [one.after - two.after for one, two in pairs]
        error = statistics.stdev(apart) / math.sqrt(len(apart)) if len(apart) > 1 else math.nan
        yield f"\nregret, {other} less {first}: {statistics.fmean(apart):+.4f} ± {error:.4f}"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search_cases.budget_end")
    parser.add_argument("curves", type=Path, nargs="+")
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--sampler", default="auto")
    parser.add_argument("--rules", nargs="+", choices=RULES, default=list(RULES))
    parser.add_argument("--workers", type=int, default=4)
    args = parser.parse_args(argv)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    tasks = [read_task(path) for path in args.curves]
    found: dict[str, list[Figures]] = {rule: [] for rule in args.rules}
    for seed in range(args.seeds):
        for task in tasks:
            for name, figures in found.items():
                figures.append(
                    play_one(
                        task,
                        sampler=args.sampler,
                        seed=seed,
                        rule=RULES[name],
                        n_devices=args.workers,
                    )
                )
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
