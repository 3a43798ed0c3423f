"""How much of their slots' time several dispatchers on one study turn into training: 5 of 6."""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import optuna

from benchmarks.common.measures import Span, efficiency, first_start_s, peak_concurrency
from benchmarks.common.processes import last_lines, started
from benchmarks.common.systems import RAY_ENV, SYSTEMS
from benchmarks.common.workload import read_spans
from benchmarks.database.servers import POSTGRESQL, new_database
from tuner.store.connection.database import open_database

PROGRAMS = Path(__file__).parent / "programs"

TUNER, THREADS, PROCESSES = "tuner", "optuna-threads", "optuna-processes"
TUNER_ONE, RAY, RAY_REUSE = "tuner-one", "ray", "ray-reuse"
#: What runs without being asked: the others are compared where nodes are.
USUAL = (TUNER, THREADS, PROCESSES)
TITLES = {
    TUNER: "tuner, {programs} dispatchers",
    TUNER_ONE: "tuner, one dispatcher of {all} slots",
    RAY: "Ray Tune, {programs} nodes, a process per trial",
    RAY_REUSE: "Ray Tune, {programs} nodes, reused actors",
    THREADS: "Optuna, {programs} programs of {slots} threads",
    PROCESSES: "Optuna, {programs} programs of {slots} processes",
}

STUDY_YAML = """\
study: fleet
storage: {url}
objectives: {{value: minimize}}
trial:
  function: fleet_trial:train
search_space:
  x: {{type: float, low: 0.0, high: 1.0}}
sampler: {{name: random}}
pruner: {{name: none}}
devices: cpu:{slots}
budget: {{trials: {trials}}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of one system. The figures are None where it failed."""

    system: str
    title: str
    repeat: int
    programs: int
    slots: int
    trials: int
    duration_s: float
    #: From before the first program is started to after the last has ended.
    wall_s: float
    efficiency: float | None
    #: From the start of the first trial to the end of the last one.
    steady_efficiency: float | None
    first_start_s: float | None
    peak_concurrency: int
    #: Of all processes of the system, start and end included; the database server's is not in it.
    #: None with Ray, whose nodes run before and after.
    cpu_ms_of_a_trial: float | None
    load_before: float
    problem: str | None


def measure(args: argparse.Namespace, server_url: str) -> Iterator[Run]:
    """All systems in turn, then again."""
    for repeat in range(1, args.repeats + 1):
        for system in args.systems:
            with (
                tempfile.TemporaryDirectory(prefix="bench-fleet-") as folder,
                new_database(POSTGRESQL, server_url) as url,
            ):
                run = run_once(system, Path(folder), url, repeat, args)
            said = run.problem or f"efficiency {run.efficiency:.2f}, {run.wall_s:.1f} s"
            print(f"{run.title}: {said}", file=sys.stderr, flush=True)
            yield run


def run_once(system: str, folder: Path, url: str, repeat: int, args: argparse.Namespace) -> Run:
    """Starts all programs at once, each in a folder of its own, and waits for the last."""
    # Made before, for both: whoever came first would otherwise make the tables within its time.
    open_database(url).close()
    if system in (THREADS, PROCESSES):
        optuna.create_study(study_name="fleet", storage=url, direction="minimize")
    n_programs = 1 if system in (TUNER_ONE, RAY, RAY_REUSE) else args.programs
    n_slots = args.programs * args.slots // n_programs
    folders = [folder / f"program-{number}" for number in range(n_programs)]
    for own in folders:
        shutil.copytree(PROGRAMS, own)
        (own / "study.yaml").write_text(
            STUDY_YAML.format(url=url, slots=n_slots, trials=args.trials)
        )
    env = _environment(folder, args)
    with ExitStack() as stack:
        if system in (RAY, RAY_REUSE):
            url = stack.enter_context(ray_nodes(folders[0], env, args.programs, args.slots))
        load_before, began_ns, cpu_s = os.getloadavg()[0], time.monotonic_ns(), -_cpu_s_of_ended()
        processes = [
            stack.enter_context(started(_command(system, url, number, args), folder=own, env=env))
            for number, own in enumerate(folders)
        ]
        codes = [_wait(each, began_ns, args.limit) for each in processes]
        wall_s = (time.monotonic_ns() - began_ns) / 1e9
    cpu_s += _cpu_s_of_ended()
    spans = read_spans(folder)
    problem = _problem(codes, len(spans), args)
    if problem:
        print("\n".join(last_lines(own) for own in folders), file=sys.stderr)
    return Run(
        system=system,
        title=TITLES[system].format(
            programs=args.programs, slots=args.slots, all=args.programs * args.slots
        ),
        repeat=repeat,
        programs=args.programs,
        slots=args.slots,
        trials=args.trials,
        duration_s=args.duration,
        wall_s=wall_s,
        efficiency=None if problem else _efficiency(wall_s, args),
        steady_efficiency=None if problem else _efficiency(steady_s(spans), args),
        first_start_s=first_start_s(spans, began_ns=began_ns),
        peak_concurrency=peak_concurrency(spans),
        cpu_ms_of_a_trial=None if system in (RAY, RAY_REUSE) else cpu_s * 1e3 / args.trials,
        load_before=load_before,
        problem=problem,
    )


def steady_s(spans: Sequence[Span]) -> float:
    """From the start of the first trial to the end of the last one."""
    return (max(one.end_ns for one in spans) - min(one.start_ns for one in spans)) / 1e9


def share_of(number: int, n_trials: int, n_programs: int) -> int:
    """How many of the trials a program of Optuna runs."""
    each, left = divmod(n_trials, n_programs)
    return each + (number < left)


def _command(system: str, url: str, number: int, args: argparse.Namespace) -> list[str]:
    if system in (TUNER, TUNER_ONE):
        return [sys.executable, *SYSTEMS["tuner"].program]
    if system in (RAY, RAY_REUSE):
        kind, n_at_once = "reuse" if system == RAY_REUSE else "process", args.programs * args.slots
        return [sys.executable, "run_ray_fleet.py", kind, url, str(n_at_once), str(args.trials)]
    kind = system.removeprefix("optuna-")
    n_trials = share_of(number, args.trials, args.programs)
    return [sys.executable, "run_optuna_fleet.py", kind, url, str(args.slots), str(n_trials)]


def _environment(folder: Path, args: argparse.Namespace) -> Mapping[str, str]:
    own = {"FLEET_EVENTS": str(folder / "events.jsonl"), "FLEET_SECONDS": str(args.duration)}
    return SYSTEMS["tuner"].environment(folder) | own | RAY_ENV


@contextmanager
def ray_nodes(folder: Path, env: Mapping[str, str], n_nodes: int, n_cpus: int) -> Iterator[str]:
    """The address of a Ray cluster, which is there before and after what uses it.

    Args:
        folder: Where its nodes work.
        env: Variables of the nodes, and so of all trials.
        n_nodes: Nodes, all on this machine.
        n_cpus: CPUs of each, as Ray counts them.
    """
    address = folder / "address"
    program = str(PROGRAMS / "ray_nodes.py")
    words = [sys.executable, program, str(n_nodes), str(n_cpus), str(address)]
    # Names of Ray's sockets are long, and may have 107 characters.
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as own:
        process = subprocess.Popen(
            words,
            cwd=folder,
            env={**env, "RAY_TMPDIR": own},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            while not address.exists():
                if process.poll() is not None:
                    raise SystemExit(f"Ray's nodes ended with exit code {process.returncode}.")
                time.sleep(0.1)
            yield address.read_text()
        finally:
            process.communicate()


def _wait(process: subprocess.Popen[bytes], began_ns: int, limit_s: float) -> int | None:
    left_s = limit_s - (time.monotonic_ns() - began_ns) / 1e9
    try:
        return process.wait(max(0.0, left_s))
    except subprocess.TimeoutExpired:
        return None


def _problem(codes: Sequence[int | None], n_done: int, args: argparse.Namespace) -> str | None:
    if None in codes:
        return f"not finished after {args.limit:.0f} s ({n_done} of {args.trials} trials)"
    if any(codes):
        return f"failed with exit codes {', '.join(map(str, codes))}"
    return None if n_done == args.trials else f"ran {n_done} of {args.trials} trials"


def _cpu_s_of_ended() -> float:
    """Processor time of all processes below this one that have ended and were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _efficiency(wall_s: float, args: argparse.Namespace) -> float:
    return efficiency(
        trials=args.trials,
        duration_s=args.duration,
        slots=args.programs * args.slots,
        wall_s=wall_s,
    )


def table(runs: Sequence[Run]) -> str:
    """One row for each system: medians."""
    lines = [
        "| system | efficiency | between first start and last end | wall | first trial after "
        "| at once | processor time of a trial | runs |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for title in dict.fromkeys(run.title for run in runs):
        own = [run for run in runs if run.title == title]
        good = [run for run in own if run.problem is None]
        if not good:
            lines.append(f"| {title} | {own[0].problem} | | | | | | 0 of {len(own)} |")
            continue
        cells = (
            title,
            f"{median(run.efficiency or 0 for run in good):.2f}",
            f"{median(run.steady_efficiency or 0 for run in good):.2f}",
            f"{median(run.wall_s for run in good):.1f} s",
            f"{median(run.first_start_s or 0 for run in good):.1f} s",
            str(max(run.peak_concurrency for run in good)),
            _cpu_cell(good),
            str(len(good)) if len(good) == len(own) else f"{len(good)} of {len(own)}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _cpu_cell(runs: Sequence[Run]) -> str:
    known = [run.cpu_ms_of_a_trial for run in runs if run.cpu_ms_of_a_trial is not None]
    return f"{median(known):.0f} ms" if known else "-"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--systems", nargs="+", choices=list(TITLES), default=list(USUAL))
    add("--programs", type=int, default=6, help="dispatchers, programs of Optuna or nodes of Ray")
    add("--slots", type=int, default=8, help="of each")
    add("--trials", type=int, default=4800, help="in all")
    add("--duration", type=float, default=0.5, help="seconds that a trial sleeps")
    add("--repeats", type=int, default=1)
    add("--limit", type=float, default=900, help="seconds that one run may take")
