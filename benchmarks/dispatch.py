"""How much of the slots' time each system turns into training, side by side.

    python -m benchmarks.dispatch --slots 8 --trials 64 --duration 2
    python -m benchmarks.dispatch --trials 64 800 --duration 2 0.2 --repeats 3 --warm-up

Prints progress, then one Markdown table, and writes a JSON file. See docs/benchmarks.md.
"""

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.common.machine import package_versions, this_machine
from benchmarks.common.measures import efficiency, first_start_s, median_gap_ms, peak_concurrency
from benchmarks.common.processes import Ended, last_lines, run
from benchmarks.common.results import Result, markdown_table, write_json
from benchmarks.common.systems import SYSTEMS, System
from benchmarks.common.workload import Workload, read_spans, write_folder
from benchmarks.peers import DEFAULT_VENVS


def measure(
    name: str, workload: Workload, *, repeat: int, venvs: Path, limit_s: float, keep: bool
) -> Result:
    """Run one system once, in a new folder."""
    system = SYSTEMS[name]
    folder = Path(tempfile.mkdtemp(prefix=f"bench-{name}-"))
    write_folder(folder, workload)
    load_before = os.getloadavg()[0]
    ended = run(
        system.command(venvs), folder=folder, env=system.environment(folder), limit_s=limit_s
    )
    result = judge(name, workload, ended, folder=folder, repeat=repeat, load_before=load_before)
    if result.problem is None and not keep:
        shutil.rmtree(folder)
    else:
        print(f"  kept: {folder}", flush=True)
    return result


def judge(
    name: str, workload: Workload, ended: Ended, *, folder: Path, repeat: int, load_before: float
) -> Result:
    """Turn what a run left behind into figures."""
    system, spans = SYSTEMS[name], read_spans(folder)
    problem = problem_of(workload, ended, trials_done=len(spans))
    if problem is not None:
        print(f"  {problem}\n{last_lines(folder)}", flush=True)
    lost = problem is not None
    return Result(
        system=name,
        title=system.title,
        workload=workload,
        repeat=repeat,
        trials_done=len(spans),
        exit_code=ended.exit_code,
        wall_s=ended.wall_s,
        efficiency=None if lost else efficiency_of(workload, ended.wall_s),
        median_gap_ms=None if lost else median_gap_ms(spans),
        gap_by="matched" if any(span.slot is None for span in spans) else system.gap_by,
        first_start_s=first_start_s(spans, began_ns=ended.began_ns),
        peak_concurrency=peak_concurrency(spans),
        load_before=load_before,
        problem=problem,
    )


def efficiency_of(workload: Workload, wall_s: float) -> float:
    return efficiency(
        trials=workload.trials,
        duration_s=workload.duration_s,
        slots=workload.slots,
        wall_s=wall_s,
    )


def problem_of(workload: Workload, ended: Ended, *, trials_done: int) -> str | None:
    """Why a run doesn't count, in a few words for its row."""
    if ended.exit_code is None:
        return (
            f"not finished after {ended.wall_s:.0f} s ({trials_done} of {workload.trials} trials)"
        )
    if ended.exit_code != 0:
        return f"failed with exit code {ended.exit_code}"
    if trials_done != workload.trials:
        return f"ran {trials_done} of {workload.trials} trials"
    return None


def measure_all(
    names: Sequence[str], workloads: Sequence[Workload], args: argparse.Namespace
) -> Iterator[Result]:
    """All systems in turn, then again: so that a slow minute doesn't fall on one system alone."""
    for workload in workloads:
        for repeat in range(1, args.repeats + 1):
            for name in names:
                print(f"{name}: {workload}, run {repeat} of {args.repeats}", flush=True)
                result = measure(
                    name,
                    workload,
                    repeat=repeat,
                    venvs=args.venv,
                    limit_s=args.limit,
                    keep=args.keep,
                )
                if result.efficiency is not None:
                    print(
                        f"  efficiency {result.efficiency:.2f}, {result.wall_s:.1f} s", flush=True
                    )
                yield result


def warm_up(names: Sequence[str], args: argparse.Namespace) -> None:
    """One short run of each that doesn't count: files read from disk, byte code written."""
    workload = Workload(slots=2, trials=4, duration_s=0.2, sampler=args.sampler)
    for name in names:
        print(f"{name}: warming up", flush=True)
        measure(name, workload, repeat=0, venvs=args.venv, limit_s=args.limit, keep=False)


def parse_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare dispatch efficiency, side by side.")
    add = parser.add_argument
    add("--slots", type=int, default=8)
    add("--trials", type=int, nargs="+", default=[64], help="one number per workload")
    add("--duration", type=float, nargs="+", default=[2.0], help="seconds, one per workload")
    add("--systems", default=",".join(SYSTEMS), help="comma-separated")
    add("--sampler", choices=("random", "tpe"), default="random")
    add("--repeats", type=int, default=1)
    add("--limit", type=float, default=1800.0, help="seconds that one run may take")
    add("--venv", type=Path, default=DEFAULT_VENVS, help="where benchmarks/peers.py put the peers")
    add("--output", type=Path, default=Path("benchmark-dispatch.json"))
    add("--warm-up", action="store_true", help="run each system once before, uncounted")
    add("--keep", action="store_true", help="keep the folder of every run")
    args = parser.parse_args(words)
    args.systems = args.systems.split(",")
    args.venv = args.venv.resolve()
    problem = mistake_in(args)
    if problem is not None:
        parser.error(problem)
    return args


def mistake_in(args: argparse.Namespace) -> str | None:
    """What is wrong with the arguments together, or None."""
    if len(args.trials) != len(args.duration):
        return "--trials and --duration need equally many numbers: one pair per workload."
    unknown = [name for name in args.systems if name not in SYSTEMS]
    if unknown:
        return f"--systems has {', '.join(unknown)}. Allowed: {', '.join(SYSTEMS)}."
    other = [name for name in args.systems if args.sampler not in SYSTEMS[name].samplers]
    if other:
        return f"--sampler {args.sampler} isn't set up for {', '.join(other)}. Leave them out."
    missing = [name for name in args.systems if not installed(SYSTEMS[name], args.venv)]
    if missing:
        return (
            f"{', '.join(missing)} not found in {args.venv}. Run `python benchmarks/peers.py "
            f"setup --venv {args.venv}`, or leave them out."
        )
    return None


def installed(system: System, venvs: Path) -> bool:
    return system.python(venvs).exists()


def main() -> int:
    args = parse_arguments()
    workloads = [
        Workload(slots=args.slots, trials=trials, duration_s=duration_s, sampler=args.sampler)
        for trials, duration_s in zip(args.trials, args.duration, strict=True)
    ]
    packages = {
        name: package_versions(SYSTEMS[name].python(args.venv), SYSTEMS[name].packages)
        for name in args.systems
    }
    print(this_machine(), flush=True)
    if args.warm_up:
        warm_up(args.systems, args)
    results: list[Result] = []
    for result in measure_all(args.systems, workloads, args):
        results.append(result)
        # After every run, so that an interrupted hour isn't lost.
        write_json(args.output, packages=packages, figures=[asdict(one) for one in results])
    print(f"\n{markdown_table(results)}\n\n{args.output} has the runs, machine and versions.")
    return int(any(result.problem is not None for result in results))


if __name__ == "__main__":
    sys.exit(main())
