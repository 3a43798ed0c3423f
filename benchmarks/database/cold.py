"""How long a start takes on a study that has had many trials: 2 of 6."""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.database.once import ASKED, JUDGED, READ, in_new_process
from benchmarks.database.servers import KINDS, SQLITE, new_database
from benchmarks.database.stored import kept_study, make_study

REPEATS_OF_OPTUNA = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Seconds from a process that has imported everything, medians."""

    system: str
    database: str
    n_trials: int
    n_reports: int
    n_repeats: int
    #: The study is read: of Optuna all of its trials.
    read_s: float
    #: A first trial is begun.
    asked_s: float
    #: Its first report is judged by the median pruner.
    judged_s: float
    load_before: float


def measure(args: argparse.Namespace, server_url: str | None) -> Iterator[Start]:
    for database in args.databases:
        with _study(database, server_url, args) as url:
            for system in args.systems:
                yield _median_start(system, database, url, args)


def _study(
    database: str, server_url: str | None, args: argparse.Namespace
) -> AbstractContextManager[str]:
    if database == SQLITE:
        return kept_study(args.keep, args.trials, args.reports)
    return _new_study(database, server_url, args)


@contextmanager
def _new_study(database: str, server_url: str | None, args: argparse.Namespace) -> Iterator[str]:
    with new_database(database, server_url) as url:
        make_study(url, args.trials, args.reports)
        yield url


def _median_start(system: str, database: str, url: str, args: argparse.Namespace) -> Start:
    load_before = os.getloadavg()[0]
    n_repeats = args.repeats if system == "tuner" else min(REPEATS_OF_OPTUNA, args.repeats)
    looks = [in_new_process(system, url, limit_s=args.limit) for _ in range(n_repeats)]
    read_s, asked_s, judged_s = (
        median(one[name]["at_s"] for one in looks) for name in (READ, ASKED, JUDGED)
    )
    print(f"{database} {system}: {asked_s:.2f} s", file=sys.stderr, flush=True)
    return Start(
        system=system,
        database=database,
        n_trials=args.trials,
        n_reports=args.reports,
        n_repeats=n_repeats,
        read_s=read_s,
        asked_s=asked_s,
        judged_s=judged_s,
        load_before=load_before,
    )


def table(starts: Sequence[Start]) -> str:
    lines = [
        "| database | system | study read | first trial asked for | first verdict | starts |",
        "|---|---|---|---|---|---|",
    ]
    for one in starts:
        lines.append(
            f"| {one.database} | {one.system} | {one.read_s:.2f} s | {one.asked_s:.2f} s "
            f"| {one.judged_s:.2f} s | {one.n_repeats} |"
        )
    return "\n".join(lines)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--databases", nargs="+", choices=KINDS, default=[SQLITE])
    add("--systems", nargs="+", choices=("tuner", "optuna"), default=["tuner", "optuna"])
    add("--trials", type=int, default=10_000, help="in the study")
    add("--reports", type=int, default=100, help="of each trial")
    add("--repeats", type=int, default=5, help="new processes; of Optuna 3 at most")
    add("--limit", type=float, default=900, help="seconds that one start may take")
    add("--keep", type=Path, help="a folder where the filled SQLite file stays for the next call")
