"""What it costs a search that its sampler is shown a part of the trials: same seeds, paired.

    python -m benchmarks.decision_cost.suggest quality
    python -m benchmarks.decision_cost.suggest quality --sampler gp --trials 600

Each objective is minimized with the sampler as Optuna has it, which looks at all trials, and with
each bound. Up to the bound both suggest the same, so that what differs comes from the bound alone.
"""

import argparse
import functools
import math
import os
import statistics
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from itertools import accumulate, pairwise, product
from pathlib import Path

import optuna
from optuna.samplers import BaseSampler, GPSampler, TPESampler

from benchmarks.common.prefilled import SPACE, loss_of
from tuner.search.samplers import tpe_speedup
from tuner.search.samplers.bounded import BoundedSampler
from tuner.search.samplers.curve_gp.shortlists import Least, age
from tuner.search.samplers.history_views import TPE_LIMIT, Shown, history_for_gp, history_for_tpe

N_AT_ONCE = 8
"""Trials that run at a time, whose values the sampler does not know."""

_HARTMANN_ALPHA = (1.0, 1.2, 3.0, 3.2)
_HARTMANN_A = (
    (10, 3, 17, 3.5, 1.7, 8),
    (0.05, 10, 17, 0.1, 8, 14),
    (3, 3.5, 1.7, 10, 17, 8),
    (17, 8, 0.05, 10, 0.1, 14),
)
_HARTMANN_P = (
    (0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886),
    (0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991),
    (0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650),
    (0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381),
)


def branin(trial: optuna.Trial) -> float:
    x, y = trial.suggest_float("x", -5, 10), trial.suggest_float("y", 0, 15)
    valley = y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6
    return valley**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10 - 0.397887357729738


def rosenbrock(trial: optuna.Trial) -> float:
    x = [trial.suggest_float(f"x{i}", -5, 10) for i in range(6)]
    return sum(100 * (b - a**2) ** 2 + (1 - a) ** 2 for a, b in pairwise(x))


def hartmann(trial: optuna.Trial) -> float:
    x = [trial.suggest_float(f"x{i}", 0, 1) for i in range(6)]
    terms = (
        alpha * math.exp(-sum(a * (each - p) ** 2 for a, each, p in zip(*rows, strict=True)))
        for alpha, rows in zip(
            _HARTMANN_ALPHA,
            ((a, x, p) for a, p in zip(_HARTMANN_A, _HARTMANN_P, strict=True)),
            strict=True,
        )
    )
    return 3.32236801141551 - sum(terms)


def mixed(trial: optuna.Trial) -> float:
    """The benchmark's own space: categories, integers and parameters that depend on others."""
    return loss_of(SPACE.suggest(trial))


OBJECTIVES: Mapping[str, Callable[[optuna.Trial], float]] = {
    "branin": branin,
    "rosenbrock": rosenbrock,
    "hartmann": hartmann,
    "mixed": mixed,
}
"""Each is 0 at its optimum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """One search. `limit` is 0 where the sampler looks at all trials."""

    sampler: str
    objective: str
    limit: int
    rest: str
    seed: int
    n_trials: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """How a search went, in log10 of the distance to the optimum."""

    search: Search
    final: float
    #: The mean over all trials of the best until then: the area under the curve.
    area: float


def run(search: Search) -> Found:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    tpe_speedup.use_in_optuna()
    study = optuna.create_study(sampler=_sampler(search))
    bests = [math.log10(max(best, 1e-12)) for best in accumulate(_values(search, study), min)]
    return Found(search=search, final=bests[-1], area=statistics.fmean(bests))


def _values(search: Search, study: optuna.Study) -> Iterator[float]:
    running: deque[tuple[optuna.Trial, float]] = deque()
    for _ in range(search.n_trials):
        trial = study.ask()
        running.append((trial, OBJECTIVES[search.objective](trial)))
        if len(running) == N_AT_ONCE:
            ended, value = running.popleft()
            study.tell(ended, value)
            yield value
    yield from (value for _, value in running)


def _sampler(search: Search) -> BaseSampler:
    if search.sampler == "gp":
        gp = GPSampler(seed=search.seed)
        choose = functools.partial(history_for_gp, gp, search.seed, limit=search.limit)
        return BoundedSampler(gp, choose) if search.limit else gp
    tpe = TPESampler(seed=search.seed)
    return BoundedSampler(tpe, functools.partial(_shown, search, tpe)) if search.limit else tpe


def _shown(search: Search, sampler: TPESampler, study: optuna.Study) -> Shown:
    shown = history_for_tpe(sampler, search.seed, study, limit=search.limit)
    if search.rest == "newest":
        shown._rest = Least(search.limit, age)
    return shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What a bound changed, in log10 of the distance to the optimum: positive is worse."""

    n_seeds: int
    final: float
    final_error: float
    area: float
    area_error: float
    n_worse: int


def effect(bounded: Sequence[Found], unbounded: Sequence[Found]) -> Effect:
    """The mean paired difference and its standard error; both in the order of the seeds."""
    pairs = list(zip(bounded, unbounded, strict=True))
    finals = [one.final - other.final for one, other in pairs]
    areas = [one.area - other.area for one, other in pairs]
    return Effect(
        n_seeds=len(pairs),
        final=statistics.fmean(finals),
        final_error=_standard_error(finals),
        area=statistics.fmean(areas),
        area_error=_standard_error(areas),
        n_worse=sum(each > 0 for each in finals),
    )


def _standard_error(values: Sequence[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan


HEADER = (
    "| sampler | objective | trials | shown | final, unbounded | final, difference "
    "| area, difference | worse in |\n"
    "|---|---|---|---|---|---|---|---|"
)


def table(found: Sequence[Found]) -> str:
    """One row for each objective and bound."""
    groups: dict[tuple[str, int, str], list[Found]] = {}
    for one in sorted(found, key=lambda each: each.search.seed):
        search = one.search
        groups.setdefault((search.objective, search.limit, search.rest), []).append(one)
    rows = [
        _row(group, groups[objective, 0, "uniform"])
        for (objective, limit, _), group in groups.items()
        if limit
    ]
    return "\n".join([HEADER, *rows])


def _row(group: Sequence[Found], unbounded: Sequence[Found]) -> str:
    search, change = group[0].search, effect(group, unbounded)
    cells = (
        search.sampler,
        search.objective,
        f"{search.n_trials:,}",
        f"{search.limit}" if search.rest == "uniform" else f"{search.limit}, {search.rest}",
        f"{statistics.fmean(one.final for one in unbounded):+.2f}",
        f"{change.final:+.3f} ± {change.final_error:.3f}",
        f"{change.area:+.3f} ± {change.area_error:.3f}",
        f"{change.n_worse} of {change.n_seeds}",
    )
    return f"| {' | '.join(cells)} |"


def searches(args: argparse.Namespace) -> Iterator[Search]:
    variants = [(0, "uniform"), *((limit, rest) for rest in args.rest for limit in args.limits)]
    for seed, objective, (limit, rest) in product(range(args.seeds), args.objectives, variants):
        yield Search(
            sampler=args.sampler,
            objective=objective,
            limit=limit,
            rest=rest,
            seed=seed,
            n_trials=args.trials,
        )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--sampler", choices=["tpe", "gp"], default="tpe")
    add("--objectives", nargs="+", choices=list(OBJECTIVES), default=list(OBJECTIVES))
    add("--trials", type=int, default=2000, help="of each search")
    add("--limits", type=int, nargs="+", default=[TPE_LIMIT])
    add("--rest", nargs="+", choices=["uniform", "newest"], default=["uniform"])
    add("--seeds", type=int, default=10)
    add("--processes", type=int, default=len(os.sched_getaffinity(0)))
    add("--output", type=Path, default=Path("benchmark-suggest-quality.json"))


def measure(args: argparse.Namespace) -> list[dict[str, object]]:
    """Runs all searches, prints the table, and gives the figures."""
    with ProcessPoolExecutor(args.processes) as processes:
        found = list(processes.map(run, searches(args)))
    print(f"log10 of the distance to the optimum; positive is worse\n\n{table(found)}")
    return [asdict(one) for one in found]
