"""How good long studies of programs that report once become, by sampler and number of trials.

    python -m benchmarks.search_cases.long_studies --trials 2000 --seeds 1
    python -m benchmarks.search_cases.long_studies --samplers curve_gp tpe --trials 10000

Functions whose optimum is known, eight trials at a time, each sampler bounded in what it looks at
as in a study of the tuner. Prints log10 of the distance to the optimum, and the processor time of a
suggestion. See docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import optuna
from optuna.samplers import BaseSampler

from benchmarks.common.quality import hartmann, rosenbrock
from tuner.config import SamplerConfig
from tuner.search.samplers.registry import build_sampler

N_AT_ONCE = 8
MARKS = (300, 1000, 2000, 5000, 10_000)
_DRAWN = np.random.default_rng(5)
_TURNED = np.linalg.qr(_DRAWN.normal(size=(10, 10)))[0]
_OPTIMUM = 0.2 + 0.6 * _DRAWN.random(10)


def ellipsoid(trial: optuna.Trial) -> float:
    """Ten parameters, turned; a hundred times as steep along one axis as along another."""
    x = np.array([trial.suggest_float(f"x{i}", 0.0, 1.0) for i in range(10)])
    along = _TURNED @ (x - _OPTIMUM)
    return float(sum(10 ** (2 * i / 9) * along[i] ** 2 for i in range(10)))


def choices(trial: optuna.Trial) -> float:
    """Four choices of four, of which each moves the optimum of a number beside it."""
    kinds = ["abcd".index(trial.suggest_categorical(f"k{i}", list("abcd"))) for i in range(4)]
    x = [trial.suggest_float(f"x{i}", 0.0, 1.0) for i in range(4)]
    apart = [x[i] - 0.2 - 0.15 * ((kinds[i] * 3 + i) % 4) for i in range(4)]
    return sum(4 * apart[i] ** 2 + 0.15 * ((kinds[i] * 5 + i * 3) % 4) for i in range(4))


FUNCTIONS: Mapping[str, Callable[[optuna.Trial], float]] = {
    "hartmann": hartmann,
    "rosenbrock": rosenbrock,
    "ellipsoid": ellipsoid,
    "choices": choices,
}
"""Each is 0 at its optimum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One study: log10 of the distance to the optimum after so many trials."""

    by_trials: Mapping[int, float]
    suggestion_ms: float


def search(sampler: BaseSampler, function: str, *, n_trials: int) -> Found:
    study = optuna.create_study(sampler=sampler)
    running: deque[tuple[optuna.Trial, float]] = deque()
    best, by_trials, took_s = math.inf, {}, 0.0
    for number in range(1, n_trials + 1):
        began_s = time.process_time()
        trial = study.ask()
        value = FUNCTIONS[function](trial)
        took_s += time.process_time() - began_s
        running.append((trial, value))
        best = min(best, value)
        if len(running) == N_AT_ONCE:
            study.tell(*running.popleft())
        if number in MARKS or number == n_trials:
            by_trials[number] = math.log10(max(best, 1e-12))
    return Found(by_trials=by_trials, suggestion_ms=took_s / n_trials * 1e3)


def sampler_of(name: str, seed: int) -> BaseSampler:
    config = SamplerConfig.model_validate({"name": name})
    return build_sampler(config, None, seed=seed)


def rows(args: argparse.Namespace) -> Iterator[str]:
    marks = [each for each in MARKS if each < args.trials] + [args.trials]
    yield f"| function | sampler | {' | '.join(f'{each:,}' for each in marks)} | ms |"
    yield "|---" * (len(marks) + 3) + "|"
    for function in args.functions:
        for name in args.samplers:
            found = [
                search(sampler_of(name, seed), function, n_trials=args.trials)
                for seed in range(args.seeds)
            ]
            cells = [statistics.fmean(each.by_trials[mark] for each in found) for mark in marks]
            took_ms = statistics.fmean(each.suggestion_ms for each in found)
            shown = " | ".join(f"{each:+.2f}" for each in cells)
            yield f"| {function} | {name} | {shown} | {took_ms:.1f} |"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search_cases.long_studies")
    add = parser.add_argument
    add("--samplers", nargs="+", default=["curve_gp", "tpe", "cma_es", "random"])
    add("--functions", nargs="+", choices=FUNCTIONS, default=list(FUNCTIONS))
    add("--trials", type=int, default=2000)
    add("--seeds", type=int, default=1)
    args = parser.parse_args(argv)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    for row in rows(args):
        print(row, flush=True)


if __name__ == "__main__":
    main()
