"""What a trial costs the dispatcher if the pruner stops trials, by how many trials are stored.

    python -m benchmarks.decision_cost.stopping
    python -m benchmarks.decision_cost.stopping --trials 100000 --systems tuner

Plays trials one after the other on an SQLite database: a random suggestion, up to 19 reports, the
decision at each rung, the end. `optuna` is Optuna's `SuccessiveHalvingPruner` with its own storage
(`RDBStorage` behind its cache), on the same values. Prints processor time for each tenth of the
trials as Markdown. See docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import optuna
from optuna.pruners import SuccessiveHalvingPruner
from optuna.samplers import RandomSampler
from optuna.trial import TrialState

from benchmarks.common.machine import this_machine
from tuner.config import Direction
from tuner.domain.messages import Action
from tuner.search.pruners.asha import AshaPruner
from tuner.search.study import StudySearch
from tuner.store.connection.database import open_database

N_STEPS = 20
FIRST_RUNG, FACTOR = 2, 3
TUNER, OPTUNA = "tuner", "optuna"
#: Optuna takes half a second a trial beyond it.
MOST_TRIALS = {TUNER: 10**9, OPTUNA: 2000}

PlayOne = Callable[[float], None]


def tuner(folder: Path) -> Iterator[PlayOne]:
    database = open_database(f"sqlite:///{folder / 'tuner.db'}")
    search = StudySearch(
        database.storage,
        "stopping",
        objectives={"accuracy": Direction.MAXIMIZE},
        space=None,
        sampler=RandomSampler(0),
        pruner=AshaPruner(min_resource=FIRST_RUNG, reduction_factor=FACTOR, mode="stop"),
    )

    def play_one(quality: float) -> None:
        asked = search.ask()
        assert asked is not None
        for step in range(1, N_STEPS):
            verdict = search.report(asked.trial_id, step, {"accuracy": quality + step / 1000})
            if verdict.action is Action.PRUNE:
                search.prune(asked.trial_id)
                break
        else:
            search.complete(asked.trial_id, {"accuracy": quality})
        database.storage.flush()

    yield play_one
    database.close()


def optunas(folder: Path) -> Iterator[PlayOne]:
    study = optuna.create_study(
        storage=f"sqlite:///{folder / 'optuna.db'}",
        direction="maximize",
        sampler=RandomSampler(0),
        pruner=SuccessiveHalvingPruner(FIRST_RUNG, FACTOR),
    )

    def play_one(quality: float) -> None:
        trial = study.ask()
        for step in range(1, N_STEPS):
            trial.report(quality + step / 1000, step)
            if trial.should_prune():
                study.tell(trial, state=TrialState.PRUNED)
                return
        study.tell(trial, quality)

    yield play_one


SYSTEMS = {TUNER: tuner, OPTUNA: optunas}


def measure(system: str, n_trials: int) -> list[tuple[int, float]]:
    """Plays trials.

    Returns:
        After each tenth of the trials: how many are stored, and milliseconds of processor that
        each trial of that tenth took.
    """
    draw = random.Random(0)
    tenth = max(1, min(n_trials, MOST_TRIALS[system]) // 10)
    measured = []
    with tempfile.TemporaryDirectory() as folder:
        for play_one in SYSTEMS[system](Path(folder)):
            for index in range(10):
                begun_s = time.process_time()
                for _ in range(tenth):
                    play_one(draw.random())
                spent_ms = (time.process_time() - begun_s) * 1000
                measured.append(((index + 1) * tenth, spent_ms / tenth))
    return measured


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    args = parser.parse_args(arguments)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    print(this_machine())
    print("\n| system | stored trials | processor of a trial |\n|---|---|---|")
    for system in args.systems:
        for n_stored, spent_ms in measure(system, args.trials):
            print(f"| {system} | {n_stored:,} | {spent_ms:.2f} ms |", flush=True)


if __name__ == "__main__":
    main()
