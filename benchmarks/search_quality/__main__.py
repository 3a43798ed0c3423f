"""How soon a search is how good, on recorded learning curves, beside its peers: same seeds, paired.

    python -m benchmarks.search_quality CURVES.npz ... --seeds 20 --workers 4 32
    python -m benchmarks.search_quality CURVES.npz ... --systems random "tuner, auto" --jobs 1
    python -m benchmarks.search_quality CURVES.npz ... --second weights    # two objectives
    python -m benchmarks.search_quality CURVES.npz ... --spoilt turned5 categories noise

Prints progress, then Markdown tables; writes a JSON file, and a picture. See docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

from benchmarks.common.machine import package_versions, this_machine
from benchmarks.common.results import write_json
from benchmarks.search_quality import two_systems
from benchmarks.search_quality.judge import Judged, Judging, judge, tables, write_picture
from benchmarks.search_quality.kept import Case, Kept
from benchmarks.search_quality.loop import Program, Search, Value, play
from benchmarks.search_quality.spoilt.ways import WAYS
from benchmarks.search_quality.systems import OURS, PEERS, SYSTEMS, seeded
from benchmarks.search_quality.tasks import read_task
from benchmarks.search_quality.two_tasks import COSTS, read_cost_task

PACKAGES = ("tuner", "optuna", "ray", "syne-tune", "torch", "numpy")


class _Searched(Judging, Program[Value], Protocol[Value]):
    """What is searched on, and says how good a search is."""


_task = functools.cache(read_task)
_cost_task = functools.cache(read_cost_task)


def run_one(case: Case) -> Judged | None:
    """Plays one search; None where the tuner is not installed."""
    if case.second is not None:
        has_conditions = case.spoilt == "conditional"
        several = _cost_task(case.curves, case.second, has_conditions=has_conditions)
        return _judged(case, several, two_systems.seeded(case.system, several, case.seed))
    task = _task(case.curves)
    if case.spoilt is not None:
        task = WAYS[case.spoilt](task)
    try:
        search = seeded(case.system, task, case.seed)
    except ModuleNotFoundError:
        return None
    return _judged(case, task, search)


def _judged(case: Case, task: _Searched[Value], search: Search[Value]) -> Judged:
    restart_s = case.restart_s
    if case.restart_share is not None:
        restart_s = case.restart_share * task.full_s
    played = play(
        search, task, n_workers=case.n_workers, restart_s=restart_s, n_medians=case.n_medians
    )
    return judge(played, task, system=case.system, n_workers=case.n_workers, seed=case.seed)


def run_all(args: argparse.Namespace) -> Iterator[Judged]:
    # Seed by seed, so that what is there after a while is of all tasks and systems.
    cases = [
        Case(
            curves=path,
            system=system,
            n_workers=n_workers,
            seed=seed,
            restart_s=args.restart if args.restart_share is None else 0.0,
            restart_share=args.restart_share,
            n_medians=args.medians,
            second=args.second,
            spoilt=spoilt,
        )
        for seed in range(args.first_seed, args.first_seed + args.seeds)
        for n_workers in args.workers
        for system in args.systems
        for spoilt in args.spoilt or [None]
        for path in args.curves
    ]
    kept = Kept(args.kept)
    yield from filter(None, map(kept.find, cases))
    new = [case for case in cases if kept.find(case) is None]
    with ProcessPoolExecutor(args.jobs) as pool:
        for case, judged in zip(new, pool.map(run_one, new), strict=True):
            if judged is None:
                print(f"{case.system} is not installed: left out", file=sys.stderr)
                continue
            kept.add(case, judged)
            print(
                f"{judged.task} {judged.system}, {judged.n_workers} workers, seed {judged.seed}: "
                f"area {judged.area:.3f}, end {judged.end:.3f}",
                file=sys.stderr,
                flush=True,
            )
            yield judged


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search_quality")
    parser.add_argument("curves", type=Path, nargs="+", help="tables of curves, as .npz files")
    parser.add_argument("--second", choices=COSTS, help="a second objective: a cost to minimize")
    parser.add_argument("--spoilt", nargs="+", choices=WAYS, help="made harder in these ways")
    parser.add_argument("--systems", nargs="+", help="by name; all but those with a prior else")
    parser.add_argument("--workers", type=int, nargs="+", default=[4, 32])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--restart", type=float, default=5.0, help="seconds an attempt takes more")
    start.add_argument(
        "--restart-share", type=float, help="the same in whole trainings, of the median one"
    )
    parser.add_argument("--medians", type=float, default=10.0, help="time, in whole trainings")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--kept", type=Path, help="what was played already; the rest is added")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--picture", type=Path)
    args = parser.parse_args(argv)
    has_two = args.second is not None
    if has_two and set(args.spoilt or ()) - {"conditional"}:
        parser.error("--spoilt with --second can be conditional alone.")
    known = [*(two_systems.SYSTEMS if has_two else SYSTEMS)]
    args.systems = args.systems or (known if has_two else [*PEERS, *OURS])
    for system in args.systems:
        if system not in known:
            parser.error(f"--systems has {system!r}, but must be of: {', '.join(known)}.")
    judged = list(run_all(args))
    print(f"{this_machine()}\n\n{tables(judged)}")
    if args.output is not None:
        figures = [asdict(each) for each in judged]
        packages = package_versions(Path(sys.executable), PACKAGES)
        write_json(args.output, packages=packages, figures=figures)
    if args.picture is not None:
        write_picture(judged, args.picture)


if __name__ == "__main__":
    main()
