"""What a decision of freeze-thaw takes, with many trials that wait at the ends of slices.

    python -m benchmarks.decision_cost.freeze_thaw
    python -m benchmarks.decision_cost.freeze_thaw --trials 1000 10000 --decisions 50 --repeats 5

Prints a Markdown table: of the table of slices and its model alone, see docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from statistics import median

import numpy as np
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from benchmarks.common.machine import this_machine
from tuner.search.pruners.freeze_thaw import FreezeThawPruner

_N_PARAMETERS = 7
_SPACE: dict[str, BaseDistribution] = {
    f"x{number}": FloatDistribution(0.0, 1.0) for number in range(_N_PARAMETERS)
}
_LAST_STEP = 64
_NOISE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """Of one decision, in milliseconds."""

    wall_ms: float
    cpu_ms: float


@dataclass(slots=True, kw_only=True)
class Timed:
    """Decisions for which the model's parameters were found anew, and all others."""

    fitted: list[Taken] = field(default_factory=list)
    others: list[Taken] = field(default_factory=list)


class Waiting:
    """Trials that wait after 1 to 64 steps, fewer the later, as slices leave them.

    Args:
        n_trials: How many.
        seed: Of their configurations and curves.
    """

    def __init__(self, n_trials: int, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._trials: list[FrozenTrial] = []
        self.table = FreezeThawPruner().new_table(1)
        self.table.length = _LAST_STEP
        self.table.trial_of = self._trials.__getitem__
        n_slices = _LAST_STEP.bit_length()
        for _ in range(n_trials):
            number = self._begin()
            for rung in range(min(n_slices, int(self._rng.geometric(0.5)))):
                self.table.come(number, rung, self._loss(number, 2**rung))
            self.table.pause(number)

    def decide(self) -> Taken:
        """A trial comes to the end of its first slice, and whoever is worth most goes on."""
        number = self._begin()
        self.table.come(number, 0, self._loss(number, 1))
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        self.table.standing(number, 0)
        self.table.pause(number)
        chosen = next(self.table.promotable(), None)
        taken = Taken(
            wall_ms=1e3 * (time.perf_counter() - wall_s),
            cpu_ms=1e3 * (time.process_time() - cpu_s),
        )
        if chosen is not None:
            self.table.unpause(chosen)
            self.table.pause(chosen)
        return taken

    def _begin(self) -> int:
        params = {name: float(self._rng.random()) for name in _SPACE}
        trial = create_trial(state=TrialState.RUNNING, params=params, distributions=_SPACE)
        trial.number = len(self._trials)
        self._trials.append(trial)
        return trial.number

    def _loss(self, number: int, step: int) -> float:
        of_params = sum(self._trials[number].params.values()) / _N_PARAMETERS
        return float(of_params + 1.0 / (1 + step) + _NOISE * self._rng.standard_normal())


def time_decisions(n_trials: int, *, n_decisions: int, n_repeats: int) -> Timed:
    """The first decision of a start finds the parameters; those that follow it use them."""
    timed = Timed()
    for seed in range(n_repeats):
        waiting = Waiting(n_trials, seed)
        timed.fitted.append(waiting.decide())
        timed.others += [waiting.decide() for _ in range(n_decisions)]
    return timed


def _cell(taken: Sequence[Taken]) -> str:
    wall, cpu = ([getattr(one, name) for one in taken] for name in ("wall_ms", "cpu_ms"))
    return f"{median(wall):.1f} ({median(cpu):.1f}), at most {max(wall):.1f}"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--trials", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--decisions", type=int, default=20, help="after each first one")
    parser.add_argument("--repeats", type=int, default=7, help="other trials each time")
    args = parser.parse_args(argv)
    FreezeThawPruner.load_model()
    print(f"{datetime.now(UTC):%Y-%m-%d}, {this_machine()}")
    print("\n| trials | ms (of the processor), median | where the parameters are found anew |")
    print("|---|---|---|")
    for n_trials in args.trials:
        print(f"{n_trials} trials ...", file=sys.stderr, flush=True)
        timed = time_decisions(n_trials, n_decisions=args.decisions, n_repeats=args.repeats)
        print(f"| {n_trials:,} | {_cell(timed.others)} | {_cell(timed.fitted)} |", flush=True)


if __name__ == "__main__":
    main()
