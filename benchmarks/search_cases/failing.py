"""How a search copes with configurations that fail, beside where the best ones are.

    python -m benchmarks.search_cases.failing --seeds 10

Three functions of which a part of the space fails as a whole: it runs out of memory, or diverges. A
trial that fails has no value and breaks a constraint, as the dispatcher marks it. Prints the regret
after half and after all trials (1 for the median of random configurations that work), and how many
trials failed. See docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import copy
import math
import statistics
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from benchmarks.common.machine import this_machine
from tuner.search.samplers.bounded import _BoundedStudy
from tuner.search.samplers.curve_gp.feasibility import is_infeasible
from tuner.search.samplers.curve_gp.sampler import CurveGPSampler
from tuner.store.optuna_compat import trials_of

_FAILED = "tuner:out_of_memory"
_N_DRAWN = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A value that is minimized, where it can be had."""

    dimensions: int
    value: Callable[[np.ndarray[Any, Any]], float]
    works: Callable[[np.ndarray[Any, Any]], bool]


def _memory(x: np.ndarray[Any, Any]) -> float:
    """Loss falls with width and depth; batch size and rate have their best inside."""
    width, depth, batch, rate = x
    return float((1 - width) ** 2 + 0.5 * (1 - depth) ** 2 + (batch - 0.4) ** 2 + (rate - 0.6) ** 2)


def _rate(x: np.ndarray[Any, Any]) -> float:
    """The larger the effective rate the better, until it diverges."""
    rate, momentum, decay = x
    return float((1.4 - rate - momentum) ** 2 + (decay - 0.3) ** 2 + 0.1 * (momentum - 0.5) ** 2)


_A = np.array(
    [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14],
     [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
)  # fmt: skip
_P = 1e-4 * np.array(
    [[1312, 1696, 5569, 124, 8283, 5886], [2329, 4135, 8307, 3736, 1004, 9991],
     [2348, 1451, 3522, 2883, 3047, 6650], [4047, 8828, 8732, 5743, 1091, 381]]
)  # fmt: skip


def _hartmann(x: np.ndarray[Any, Any]) -> float:
    """Hartmann's function of six parameters, best at (0.20, 0.15, 0.48, 0.28, 0.31, 0.66)."""
    return -float(np.array([1.0, 1.2, 3.0, 3.2]) @ np.exp(-(_A * (x - _P) ** 2).sum(axis=1)))


PROGRAMS: Mapping[str, Program] = {
    # Memory grows with width, depth and batch size.
    "memory": Program(dimensions=4, value=_memory, works=lambda x: bool(x[:3].sum() < 1.8)),
    "diverges": Program(dimensions=3, value=_rate, works=lambda x: bool(x[0] + x[1] < 1.2)),
    "hartmann": Program(
        dimensions=6, value=_hartmann, works=lambda x: bool(x[0] + x[2] + x[5] < 1.45)
    ),
}


class _Shown(CurveGPSampler):
    """Shows the model other trials in place of those that failed."""

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        shown = self.shown(trials_of(study))
        view = cast(optuna.Study, _BoundedStudy(study, shown, is_whole=False))
        return super().sample_relative(view, trial, search_space)

    def shown(self, trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
        raise NotImplementedError


class WorstValue(_Shown):
    """As the tuner had it before: a trial that failed has the worst value of all."""

    def shown(self, trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
        values = [each.value for each in trials if each.value is not None]
        return [_with_value(e, max(values)) if values and is_infeasible(e) else e for e in trials]


class Unaware(_Shown):
    """Learns nothing from a trial that failed."""

    def shown(self, trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
        return [each for each in trials if not is_infeasible(each)]


def _with_value(trial: FrozenTrial, value: float) -> FrozenTrial:
    ended = copy.copy(trial)
    ended.system_attrs, ended.state, ended.values = {}, TrialState.COMPLETE, [value]
    return ended


SAMPLERS: Mapping[str, Callable[[int], BaseSampler]] = {
    "curve_gp: probability that it works": lambda seed: CurveGPSampler(seed=seed),
    "curve_gp: the worst value": lambda seed: WorstValue(seed=seed),
    "curve_gp: failures ignored": lambda seed: Unaware(seed=seed),
    "Optuna, TPE": lambda seed: TPESampler(seed=seed),
    "random": lambda seed: RandomSampler(seed=seed),
}


def searched(program: Program, sampler: BaseSampler, n_trials: int) -> list[float]:
    """[n_trials], the value of each, infinite where it failed."""
    space: dict[str, BaseDistribution] = {
        f"x{k}": FloatDistribution(0.0, 1.0) for k in range(program.dimensions)
    }
    study = optuna.create_study(sampler=sampler)
    found = []
    for _ in range(n_trials):
        trial = study.ask(space)
        x = np.array([trial.params[name] for name in space])
        if program.works(x):
            found.append(program.value(x))
            study.tell(trial, found[-1])
        else:
            found.append(math.inf)
            trial.set_constraint(_FAILED, 1.0)
            study.tell(trial, state=TrialState.PRUNED)
    return found


def scale_of(program: Program) -> tuple[float, float]:
    """The best value and the median of configurations that work: the best of many, refined."""
    rng = np.random.default_rng(0)
    rows = rng.random((_N_DRAWN, program.dimensions))
    rows = rows[[program.works(row) for row in rows]]
    values = [program.value(row) for row in rows]
    best, at = min(values), rows[int(np.argmin(values))]
    for k in range(_N_DRAWN):
        row = np.clip(at + rng.normal(0.0, 0.1 * 0.999**k + 1e-4, at.shape), 0.0, 1.0)
        if program.works(row) and program.value(row) < best:
            best, at = program.value(row), row
    return best, statistics.median(values)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search_cases.failing")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--samplers", nargs="+", choices=SAMPLERS, default=[*SAMPLERS])
    args = parser.parse_args(argv)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.simplefilter("ignore", ExperimentalWarning)
    print(f"{this_machine()}\n")
    print(f"| sampler | {' | '.join(PROGRAMS)} | mean | failed |")
    print("|---" * (len(PROGRAMS) + 3) + "|")
    scales = {name: scale_of(program) for name, program in PROGRAMS.items()}
    for sampler in args.samplers:
        cells, ends, failed = [], [], []
        for name, program in PROGRAMS.items():
            best, median = scales[name]
            runs = [
                searched(program, SAMPLERS[sampler](seed), args.trials)
                for seed in range(args.seeds)
            ]
            half, end = (
                [min(1.0, (min(run[:n]) - best) / (median - best)) for run in runs]
                for n in (args.trials // 2, args.trials)
            )
            error = statistics.stdev(end) / len(end) ** 0.5 if len(end) > 1 else 0.0
            cells.append(
                f"{statistics.fmean(half):.3f} / {statistics.fmean(end):.3f} ± {error:.3f}"
            )
            ends.append(statistics.fmean(end))
            failed += [math.isinf(value) for run in runs for value in run]
        figures = f"{statistics.fmean(ends):.3f} | {statistics.fmean(failed):.0%}"
        print(f"| {sampler} | {' | '.join(cells)} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
