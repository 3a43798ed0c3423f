"""What a trial takes of the dispatcher, beside what Optuna takes for the same: 1 of 6."""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import optuna
import sqlalchemy as sa
from optuna.pruners import MedianPruner
from optuna.samplers import RandomSampler
from optuna.storages import RDBStorage

from benchmarks.database.played import JumpingClock, PlayedWorkers
from benchmarks.database.rig import Transactions, build_dispatcher, opened, unseen_view
from benchmarks.database.servers import KINDS, SQLITE, new_database
from benchmarks.database.stored import SPACE, STUDY, make_study, value_at
from tuner.dispatch.notices import Ended, Notice, Snapshot, View

TUNER, OPTUNA, OPTUNA_WAL = "tuner", "Optuna", "Optuna, WAL"
SYSTEMS = (TUNER, OPTUNA, OPTUNA_WAL)
MOST_STORED_OF_OPTUNA = 5000
"""With more each of its reports takes longer still, and a run takes an hour."""

_TRIALS_OF_A_BLOCK = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One trial, from being asked for to its end, medians."""

    system: str
    database: str
    n_stored: int
    n_reports: int
    n_timed: int
    wall_ms: float
    #: Of all threads of the process; of the database server nothing.
    cpu_ms: float
    transactions: float
    load_before: float


@dataclass(frozen=True, slots=True)
class Taken:
    wall_ms: float
    cpu_ms: float


class Stopwatch:
    """Time since the last look."""

    def __init__(self) -> None:
        self._wall_s, self._cpu_s = time.perf_counter(), time.process_time()

    def lap(self, n_trials: int = 1) -> Taken:
        """Of each of so many trials."""
        before_s, before_cpu_s = self._wall_s, self._cpu_s
        self._wall_s, self._cpu_s = time.perf_counter(), time.process_time()
        return Taken(
            (self._wall_s - before_s) * 1e3 / n_trials,
            (self._cpu_s - before_cpu_s) * 1e3 / n_trials,
        )


class TimingView:
    """Looks at the time at every tenth end of a trial; the first ten are not counted.

    Args:
        inner: Who writes the lines.
    """

    def __init__(self, inner: View) -> None:
        self._inner = inner
        self.refresh_every_s = inner.refresh_every_s
        self._n_ended = 0
        self._watch = Stopwatch()
        self.taken: list[Taken] = []

    def show(self, notice: Notice) -> None:
        self._inner.show(notice)
        if not isinstance(notice, Ended):
            return
        self._n_ended += 1
        if self._n_ended % _TRIALS_OF_A_BLOCK == 0:
            block = self._watch.lap(_TRIALS_OF_A_BLOCK)
            if self._n_ended > _TRIALS_OF_A_BLOCK:
                self.taken.append(block)

    def refresh(self, snapshot: Snapshot) -> None:
        self._inner.refresh(snapshot)


def time_tuner(url: str, n_stored: int, args: argparse.Namespace) -> tuple[list[Taken], float]:
    """The dispatcher's own loop to the end of its budget, with nothing beside it."""
    clock = JumpingClock()
    workers = PlayedWorkers(clock, n_reports=args.reports, report_every_s=args.report_every)
    with (
        tempfile.TemporaryDirectory(prefix="bench-database-") as folder,
        opened(url, clock, n_slots=args.slots) as study,
        unseen_view() as lines,
    ):
        view, counted = TimingView(lines), Transactions(study.database.engine)
        dispatcher = build_dispatcher(
            study,
            folder=Path(folder),
            n_slots=args.slots,
            n_trials=n_stored + args.trials,
            launcher=workers,
            channel=workers,
            view=view,
            clock=clock,
        )
        dispatcher.run(workers)
    assert not workers.n_pruned, "each trial is to send all of its reports"
    return view.taken, counted.n / args.trials


def time_optuna(url: str, args: argparse.Namespace, *, is_wal: bool) -> tuple[list[Taken], float]:
    """One trial after the other, as `study.optimize` would, for a minute at most."""
    storage = RDBStorage(url)
    if is_wal:
        sa.event.listen(storage.engine, "connect", _as_the_tuner_sets_it)
        storage.engine.dispose()
    counted = Transactions(storage.engine)
    taken: list[Taken] = []
    study = optuna.load_study(
        study_name=STUDY, storage=storage, sampler=RandomSampler(), pruner=MedianPruner()
    )
    _run_trial(study, args.reports)  # It reads all trials, and is not counted.
    began_s, counted.n, watch = time.perf_counter(), 0, Stopwatch()
    while len(taken) < args.optuna_trials:
        if len(taken) >= 3 and time.perf_counter() - began_s > args.limit:
            break
        _run_trial(study, args.reports)
        taken.append(watch.lap())
    storage.engine.dispose()
    return taken, counted.n / len(taken)


def _run_trial(study: optuna.Study, n_reports: int) -> None:
    trial = study.ask()
    SPACE.suggest(trial)
    for step in range(1, n_reports + 1):
        trial.report(value_at(step), step)
        assert not trial.should_prune(), "each trial is to send all of its reports"
    study.tell(trial, value_at(n_reports))


def _as_the_tuner_sets_it(connection: sa.engine.interfaces.DBAPIConnection, _: object) -> None:
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def cases(args: argparse.Namespace) -> Iterator[tuple[str, int, str]]:
    """Database, stored trials, system."""
    for database in args.databases:
        for n_stored in args.stored:
            for system in args.systems:
                is_too_large = system != TUNER and n_stored > MOST_STORED_OF_OPTUNA
                if not is_too_large and (system != OPTUNA_WAL or database == SQLITE):
                    yield database, n_stored, system


def measure(args: argparse.Namespace, server_url: str | None) -> Iterator[Timed]:
    for database, n_stored, system in cases(args):
        with new_database(database, server_url) as url:
            make_study(url, n_stored, args.reports)
            load_before = os.getloadavg()[0]
            if system == TUNER:
                taken, transactions = time_tuner(url, n_stored, args)
            else:
                taken, transactions = time_optuna(url, args, is_wal=system == OPTUNA_WAL)
        timed = Timed(
            system=system,
            database=database,
            n_stored=n_stored,
            n_reports=args.reports,
            n_timed=len(taken) * (_TRIALS_OF_A_BLOCK if system == TUNER else 1),
            wall_ms=median(one.wall_ms for one in taken),
            cpu_ms=median(one.cpu_ms for one in taken),
            transactions=transactions,
            load_before=load_before,
        )
        print(
            f"{database} {n_stored} {system}: {timed.wall_ms:.1f} ms", file=sys.stderr, flush=True
        )
        yield timed


def table(timed: Sequence[Timed]) -> str:
    """One row for each database and system, one column for each number of stored trials."""
    sizes = sorted({one.n_stored for one in timed})
    rows: dict[tuple[str, str], dict[int, Timed]] = {}
    for one in timed:
        rows.setdefault((one.database, one.system), {})[one.n_stored] = one
    header = " | ".join(f"{size:,} stored" for size in sizes)
    lines = [f"| database | system | {header} | transactions |", "|---" * (len(sizes) + 3) + "|"]
    for (database, system), found in rows.items():
        cells = [
            f"{found[size].wall_ms:.1f} ms ({found[size].cpu_ms:.1f})" if size in found else "-"
            for size in sizes
        ]
        transactions = median(one.transactions for one in found.values())
        lines.append(f"| {database} | {system} | {' | '.join(cells)} | {transactions:.1f} |")
    return "\n".join(lines)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--databases", nargs="+", choices=KINDS, default=list(KINDS))
    add("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    add("--stored", type=int, nargs="+", default=[400, 5000, 50_000], help="trials in the study")
    add("--reports", type=int, default=20, help="of each trial")
    add("--slots", type=int, default=8, help="trials at once, of the tuner")
    add("--report-every", type=float, default=0.5, help="s between reports, on the played clock")
    add("--trials", type=int, default=200, help="of the tuner")
    add("--optuna-trials", type=int, default=20, help="timed of Optuna")
    add("--limit", type=float, default=60, help="seconds of Optuna, where three are timed at least")
