"""How much memory a process takes that has a large study open: 4 of 6."""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.database.once import ASKED, IMPORTED, JUDGED, READ, Looks, in_new_process
from benchmarks.database.stored import kept_study

MB = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Resident memory of one process, in bytes."""

    system: str
    n_trials: int
    n_reports: int
    imported: float
    #: The study is open, and a first trial is begun.
    open: float
    #: A verdict of the median pruner has looked at every curve.
    judged: float
    #: At any moment.
    peak: float
    load_before: float

    @property
    def of_a_trial(self) -> float:
        return (self.judged - self.imported) / self.n_trials


def measure(args: argparse.Namespace) -> Iterator[Held]:
    sizes = {"tuner": args.trials, "optuna": args.optuna_trials}
    for system in args.systems:
        with kept_study(args.keep, sizes[system], args.reports) as url:
            load_before = os.getloadavg()[0]
            looks = in_new_process(system, url, limit_s=args.limit)
        held = _held(looks, system, sizes[system], args.reports, load_before)
        print(f"{system}: {held.judged / MB:.0f} MB", file=sys.stderr, flush=True)
        yield held


def _held(looks: Looks, system: str, n_trials: int, n_reports: int, load_before: float) -> Held:
    opened = ASKED if system == "tuner" else READ
    return Held(
        system=system,
        n_trials=n_trials,
        n_reports=n_reports,
        imported=looks[IMPORTED]["rss"],
        open=looks[opened]["rss"],
        judged=looks[JUDGED]["rss"],
        peak=max(look["peak"] for look in looks.values()),
        load_before=load_before,
    )


def table(held: Sequence[Held]) -> str:
    lines = [
        "| system | trials x reports | before | study open | all curves looked at | peak "
        "| of a trial |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in held:
        figures = (one.imported, one.open, one.judged, one.peak)
        cells = " | ".join(f"{figure / MB:,.0f} MB" for figure in figures)
        lines.append(
            f"| {one.system} | {one.n_trials:,} x {one.n_reports} | {cells} "
            f"| {one.of_a_trial / 1000:.1f} kB |"
        )
    return "\n".join(lines)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--systems", nargs="+", choices=("tuner", "optuna"), default=["tuner", "optuna"])
    add("--trials", type=int, default=100_000, help="in the tuner's study")
    add("--optuna-trials", type=int, default=5000, help="in Optuna's study")
    add("--reports", type=int, default=100, help="of each trial")
    add("--limit", type=float, default=900, help="seconds that opening may take")
    add("--keep", type=Path, help="a folder where the filled SQLite files stay for the next call")
