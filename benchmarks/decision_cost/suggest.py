"""What a suggestion costs the dispatcher in a study that has had many trials.

    python -m benchmarks.decision_cost.suggest
    python -m benchmarks.decision_cost.suggest --samplers tpe gp --trials 1000 50000
    python -m benchmarks.decision_cost.suggest quality

Fills an SQLite database with completed and pruned trials, then asks and tells while eight trials
run: through the tuner (`tuner`), through the tuner with a sampler that looks at all trials
(`unbounded`), and with Optuna and its own storage (`optuna`). Where the tuner has a suggestion made
in another process, the time counts in which the dispatcher's loop is held up, and the time until
the suggestion is there is shown beside it. Prints Markdown and writes a JSON file. See
docs/benchmarks.md.
"""

import argparse
import os
import select
import sys
import tempfile
import time
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Protocol

import optuna
from optuna.pruners import NopPruner
from optuna.samplers import BaseSampler, RandomSampler
from optuna.trial import TrialState

from benchmarks.common import quality
from benchmarks.common.machine import package_versions, this_machine
from benchmarks.common.prefilled import (
    SPACE,
    Params,
    fill,
    loss_of,
    note_generations,
    random_trials,
)
from benchmarks.common.results import write_json
from tuner.config import Direction, SamplerConfig
from tuner.search.samplers.bounded import BoundedSampler
from tuner.search.samplers.out_of_process.sampler import OutOfProcessSampler, out_of_process
from tuner.search.samplers.registry import build_sampler
from tuner.search.study import StudySearch
from tuner.store.connection.database import Database, open_database

STUDY = "filled"
N_AT_ONCE = 8
SAMPLERS = ("random", "tpe", "gp", "cmaes", "nsgaii")
TUNER, UNBOUNDED, OPTUNA = "tuner", "unbounded", "optuna"
MOST_TRIALS = {TUNER: 10**9, UNBOUNDED: 10**9, OPTUNA: 5000}
"""The systems, with the trials up to which each is measured: Optuna takes minutes to read more."""

MOST_TRIALS_OF_GP = 1000
"""Where it looks at all of them: with ten times as many it takes a thousand times as long."""

PACKAGES = ("tuner", "optuna", "numpy", "scipy", "torch", "cmaes")


class Asking(Protocol):
    """A study that can be asked and told."""

    #: How long the newest suggestion was in the making while the dispatcher could do other things.
    elsewhere_s: float

    def ask(self) -> tuple[int, Params]: ...

    def tell(self, trial: int, loss: float | None) -> None: ...

    def rest(self) -> None:
        """Does what the dispatcher does apart from suggestions: writes its batch."""


class Tuner:
    """As the dispatcher asks."""

    elsewhere_s = 0.0

    def __init__(self, database: Database, sampler: BaseSampler) -> None:
        self._aside = sampler if isinstance(sampler, OutOfProcessSampler) else None
        self._storage = database.storage
        self._search = StudySearch(
            database.storage,
            STUDY,
            objectives={"loss": Direction.MINIMIZE},
            space=SPACE,
            sampler=sampler,
            pruner=NopPruner(),
        )

    def ask(self) -> tuple[int, Params]:
        self.elsewhere_s = 0.0
        while not self._search.is_ready:
            assert self._aside is not None, "what is made here is ready at once"
            began_s = time.perf_counter()
            # As the loop waits: for whatever wakes it.
            select.select([self._aside], [], [])
            self.elsewhere_s += time.perf_counter() - began_s
        asked = self._search.ask()
        assert asked is not None
        return asked.trial_id, asked.params

    def tell(self, trial: int, loss: float | None) -> None:
        if loss is None:
            self._search.fail(trial)
        else:
            self._search.complete(trial, {"loss": loss})

    def rest(self) -> None:
        self._storage.flush()


class Optuna:
    """As one asks without the tuner."""

    elsewhere_s = 0.0

    def __init__(self, url: str, sampler: BaseSampler) -> None:
        self._study = optuna.load_study(study_name=STUDY, storage=url, sampler=sampler)

    def ask(self) -> tuple[int, Params]:
        trial = self._study.ask()
        return trial.number, SPACE.suggest(trial)

    def tell(self, trial: int, loss: float | None) -> None:
        self._study.tell(trial, loss, TrialState.FAIL if loss is None else None)

    def rest(self) -> None:
        pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One ask and one tell, medians: wall time of the loop, and processor time of its process."""

    system: str
    sampler: str
    n_trials: int
    n_suggestions: int
    #: The first one, which looks at all trials once.
    first_ms: float
    ask_ms: float
    tell_ms: float
    both_ms: float
    both_cpu_ms: float
    longest_ms: float
    #: Of the suggestion in another process, while the loop is free; 0 where there is none.
    elsewhere_ms: float
    load_before: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    ask_ms: float
    tell_ms: float
    cpu_ms: float
    elsewhere_ms: float


def time_suggestions(
    asking: Asking, *, n_suggestions: int, limit_s: float
) -> tuple[float, list[Taken]]:
    """The first suggestion, then as many as asked, or three at least within the limit."""
    running: deque[tuple[int, Params]] = deque()
    began_s = time.perf_counter()
    running.append(asking.ask())
    first_ms = (time.perf_counter() - began_s) * 1e3
    running.extend(asking.ask() for _ in range(N_AT_ONCE - 1))
    taken: list[Taken] = []
    while len(taken) < n_suggestions:
        if len(taken) >= 3 and time.perf_counter() - began_s > limit_s:
            break
        taken.append(_ask_and_tell(asking, running))
        asking.rest()
    for trial, _ in running:
        asking.tell(trial, None)
    asking.rest()
    return first_ms, taken


def _ask_and_tell(asking: Asking, running: deque[tuple[int, Params]]) -> Taken:
    cpu_s, start_s = time.process_time(), time.perf_counter()
    running.append(asking.ask())
    asked_s = time.perf_counter()
    trial, params = running.popleft()
    asking.tell(trial, loss_of(params))
    told_s = time.perf_counter()
    return Taken(
        ask_ms=(asked_s - start_s - asking.elsewhere_s) * 1e3,
        elsewhere_ms=asking.elsewhere_s * 1e3,
        tell_ms=(told_s - asked_s) * 1e3,
        cpu_ms=(time.process_time() - cpu_s) * 1e3,
    )


def measure(
    asking: Asking, case: tuple[str, str], n_trials: int, args: argparse.Namespace
) -> Timed:
    load_before = os.getloadavg()[0]
    first_ms, taken = time_suggestions(asking, n_suggestions=args.suggestions, limit_s=args.limit)
    both_ms = [one.ask_ms + one.tell_ms for one in taken]
    return Timed(
        system=case[0],
        sampler=case[1],
        n_trials=n_trials,
        n_suggestions=len(taken),
        first_ms=first_ms,
        ask_ms=median(one.ask_ms for one in taken),
        tell_ms=median(one.tell_ms for one in taken),
        both_ms=median(both_ms),
        both_cpu_ms=median(one.cpu_ms for one in taken),
        longest_ms=max(both_ms),
        elsewhere_ms=median(one.elsewhere_ms for one in taken),
        load_before=load_before,
    )


@contextmanager
def filled(n_trials: int) -> Iterator[Database]:
    """A database with one study of so many finished trials."""
    with tempfile.TemporaryDirectory(prefix="bench-suggest-") as folder:
        url = f"sqlite:///{folder}/study.db"
        with closing(open_database(url)) as database:
            Tuner(database, RandomSampler())
            study_id = database.storage.get_study_id_from_name(STUDY)
            fill(database.engine, study_id, random_trials(n_trials, seed=0))
            note_generations(database.engine, study_id, n_trials)
        # Opened anew, so that the trials are read as by a dispatcher that starts.
        with closing(open_database(url)) as database:
            yield database


@contextmanager
def asking_of(system: str, name: str, database: Database) -> Iterator[Asking]:
    sampler = build_sampler(SamplerConfig.model_validate({"name": name}), SPACE, seed=0)
    if system == TUNER and (aside := out_of_process(sampler)) is not None:
        with closing(aside):
            yield Tuner(database, aside)
        return
    if system != TUNER and isinstance(sampler, BoundedSampler):
        sampler = sampler.inner
    yield Optuna(database.shown_url, sampler) if system == OPTUNA else Tuner(database, sampler)


def cases(n_trials: int, args: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """System and sampler. Optuna alone comes last, because what it adds the tuner has to read."""
    for system in sorted(args.systems, key=list(MOST_TRIALS).index):
        for name in args.samplers:
            most = MOST_TRIALS[system]
            if name == "gp" and system != TUNER:
                most = MOST_TRIALS_OF_GP
            if n_trials <= most:
                yield system, name


def time_all(args: argparse.Namespace) -> Iterator[Timed]:
    for n_trials in args.trials:
        with filled(n_trials) as database:
            for case in cases(n_trials, args):
                with asking_of(*case, database) as asking:
                    timed = measure(asking, case, n_trials, args)
                print(f"{case} {n_trials}: {timed.both_ms:.1f} ms", file=sys.stderr, flush=True)
                yield timed


def table(timed: Sequence[Timed]) -> str:
    """One row for each sampler and system, one column for each number of trials."""
    sizes = sorted({one.n_trials for one in timed})
    rows: dict[tuple[str, str], dict[int, str]] = {}
    for one in timed:
        cell = f"{one.both_ms:.1f} ({one.both_cpu_ms:.1f})"
        if one.elsewhere_ms:
            cell += f", ready after {one.elsewhere_ms:.0f}"
        rows.setdefault((one.sampler, one.system), {})[one.n_trials] = cell
    lines = [
        f"| {sampler} | {system} | {' | '.join(cells.get(size, '-') for size in sizes)} |"
        for (sampler, system), cells in sorted(rows.items())
    ]
    header = f"| sampler | system | {' | '.join(f'{size:,}' for size in sizes)} |"
    return "\n".join([header, "|---" * (len(sizes) + 2) + "|", *lines])


def parse_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure what a suggestion costs.")
    subparsers = parser.add_subparsers(dest="what")
    quality.add_arguments(subparsers.add_parser("quality", help="what the bounds cost a search"))
    add = parser.add_argument
    add("--samplers", nargs="+", default=SAMPLERS)
    add("--trials", type=int, nargs="+", default=[100, 1000, 5000, 10_000, 50_000])
    add("--systems", nargs="+", default=list(MOST_TRIALS), choices=list(MOST_TRIALS))
    add("--suggestions", type=int, default=25, help="timed of each sampler, system and size")
    add("--limit", type=float, default=60, help="seconds of each, where three are timed at least")
    add("--output", type=Path, default=Path("benchmark-suggest.json"))
    return parser.parse_args(words)


def main() -> int:
    args = parse_arguments()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    print(f"{datetime.now(UTC):%Y-%m-%d}, {this_machine()}\n", flush=True)
    if args.what == "quality":
        figures: object = quality.measure(args)
    else:
        timed = list(time_all(args))
        print(
            "Ask and tell, median ms of the dispatcher's time (of its processor); where another "
            f"process makes the suggestion, when it was ready\n\n{table(timed)}"
        )
        figures = [asdict(one) for one in timed]
    packages = package_versions(Path(sys.executable), PACKAGES)
    write_json(args.output, packages={"tuner": packages}, figures=figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
