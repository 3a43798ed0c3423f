"""How fast, and how well, trials of all widths get their devices. Virtual devices, virtual clock.

    python -m benchmarks.placement
    python -m benchmarks.placement --devices 64 8 --seeds 10 --sigma 1.0
    python -m benchmarks.placement --only arrivals --arrivals 600 --seeds 20
    python -m benchmarks.placement --only arrivals --arrivals 600 --chances 0 0.5 0.9 1.1

Prints Markdown tables and writes a JSON file. See docs/benchmarks.md.
"""

import argparse
import heapq
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean, median, quantiles, stdev

from benchmarks.common.arrivals import N_DEVICES, Loaded, LoadedReplay, Tail, Workload
from benchmarks.common.easy import EasyBackfill
from benchmarks.common.machine import package_versions, this_machine
from benchmarks.common.replay import (
    GIB,
    WHOLE_WEIGHTS,
    WHOLE_WIDTHS,
    FirstComeFirstServed,
    GreedyBackfill,
    Line,
    Replay,
    Replayed,
    Trial,
    machines,
    mixed_trials,
)
from benchmarks.common.results import write_json
from tuner.devices.allocation.durations import Durations
from tuner.devices.allocation.pool import DevicePool, Lease
from tuner.devices.allocation.queue import PATIENCE, WaitingLine
from tuner.devices.allocation.width import MemoryShare, Share, Width, parts_of
from tuner.dispatch.supply.leasing import LOOKAHEAD

ALL_WIDTHS: tuple[Width, ...] = (
    *WHOLE_WIDTHS,
    Share(parts=parts_of(0.25)),
    Share(parts=parts_of(0.5)),
    MemoryShare(memory_bytes=20 * GIB),
)
ALL_WEIGHTS = (*WHOLE_WEIGHTS, 20, 10, 10)

Clock = Callable[[], float]
NewLine = Callable[[Clock], Line]


def tuners_line(clock: Clock) -> WaitingLine[Trial]:
    """The tuner's policy, as it runs."""
    return WaitingLine[Trial](durations=Durations(clock))


TUNERS = "the tuner's"
EASY = "EASY, durations known"
PATIENT = f"without durations: patience {PATIENCE:g}"
PEERS: dict[str, NewLine] = {
    PATIENT: lambda clock: WaitingLine[Trial](),
    "first come, first served": lambda clock: FirstComeFirstServed(),
    "greedy backfill": lambda clock: GreedyBackfill(),
    EASY: EasyBackfill,
}
POLICIES: dict[str, NewLine] = {
    TUNERS: tuners_line,
    "patience 0: reserves at once": lambda clock: WaitingLine[Trial](patience=0),
    "patience until all have ended": lambda clock: WaitingLine[Trial](patience=math.inf),
    **PEERS,
}


def replay_all(args: argparse.Namespace) -> Iterator[Replayed]:
    """Each policy with all waiting, then the tuner's with ever shorter lines."""
    for n_devices in args.devices:
        for seed in range(args.seeds):
            trials = mixed_trials(
                args.trials, widths=WHOLE_WIDTHS, weights=WHOLE_WEIGHTS, sigma=args.sigma, seed=seed
            )
            for policy, line in POLICIES.items():
                yield Replay(line, n_devices, trials).run(policy, seed)
            for lookahead in args.lookahead:
                yield Replay(tuners_line, n_devices, trials, lookahead).run(TUNERS, seed)


def replay_arrivals(args: argparse.Namespace) -> Iterator[Loaded]:
    """Each policy on heavy-tailed workloads, and the tuner's with other chances to pass."""
    policies = {TUNERS: tuners_line, **PEERS}
    for chance in args.chances:
        policies[f"the tuner's, chance {chance:g}"] = partial(_line_of_chance, chance)
    for workload, seed in product(_workloads(args.arrivals), range(args.seeds)):
        for policy, line in policies.items():
            yield LoadedReplay(line, workload, seed).run(policy)


def _line_of_chance(chance: float, clock: Clock) -> WaitingLine[Trial]:
    return WaitingLine[Trial](durations=Durations(clock), least_chance=chance)


def _workloads(n_trials: int) -> Iterator[Workload]:
    for tail in Tail:
        for load in (0.9, 1.1, None):
            yield Workload(n_trials=n_trials, tail=tail, load=load)
        yield Workload(n_trials=n_trials, tail=tail, lookahead=LOOKAHEAD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """Processor time of one call of `start_next`."""

    n_devices: int
    policy: str
    n_waiting: int
    n_decisions: int
    median_us: float
    p99_us: float
    longest_us: float


def time_decisions(
    n_devices: int, n_waiting: int, n_decisions: int, *, policy: str, seed: int
) -> Decisions:
    """Ends and starts trials of all widths and shares while the line stays as long as it is."""
    trials = mixed_trials(
        n_waiting + n_decisions, widths=ALL_WIDTHS, weights=ALL_WEIGHTS, sigma=0.5, seed=seed
    )
    pool, line = DevicePool(machines(n_devices)), POLICIES[policy](lambda: now_s)
    unasked = iter(trials)
    running: list[tuple[float, int, Lease]] = []
    taken_us: list[float] = []
    now_s = 0.0
    for _ in range(n_waiting):
        put_next(line, unasked)
    while len(taken_us) < n_decisions:
        began_ns = time.thread_time_ns()
        started = line.start_next(pool, name=lambda _: "", may_use=lambda *_: True)
        taken_us.append((time.thread_time_ns() - began_ns) / 1e3)
        if started is None:
            now_s, _, lease = heapq.heappop(running)
            pool.release(lease)
            line.ended(lease)
            continue
        trial, lease = started
        heapq.heappush(running, (now_s + trial.duration_s, lease.number, lease))
        put_next(line, unasked)
    return Decisions(
        n_devices=n_devices,
        policy=policy,
        n_waiting=len(line),
        n_decisions=n_decisions,
        median_us=median(taken_us),
        p99_us=quantiles(taken_us, n=100)[-1],
        longest_us=max(taken_us),
    )


def put_next(line: Line, unasked: Iterator[Trial]) -> None:
    trial = next(unasked)
    line.put(trial, trial.width)


DECISIONS_HEADER = (
    "| devices | waiting | policy | decisions | median | 99 % are below | longest |\n"
    "|---|---|---|---|---|---|---|"
)


def decisions_table(timed: Sequence[Decisions]) -> str:
    rows = (
        f"| {one.n_devices} | {one.n_waiting} | {one.policy} | {one.n_decisions} "
        f"| {one.median_us / 1e3:.3f} ms | {one.p99_us / 1e3:.3f} ms "
        f"| {one.longest_us / 1e3:.3f} ms |"
        for one in timed
    )
    return "\n".join([DECISIONS_HEADER, *rows])


REPLAY_HEADER = (
    "| devices | policy | waiting at most | used while trials wait | used in all "
    "| longest wait of the oldest, in longest trials |\n"
    "|---|---|---|---|---|---|"
)


def replay_table(replays: Sequence[Replayed]) -> str:
    """One row for each policy and length of the line: the median of all seeds, and the range."""
    groups: dict[tuple[int, str, int | None], list[Replayed]] = {}
    for one in replays:
        groups.setdefault((one.n_devices, one.policy, one.lookahead), []).append(one)
    return "\n".join([REPLAY_HEADER, *(_row(group) for group in groups.values())])


def _row(group: Sequence[Replayed]) -> str:
    first = group[0]
    cells = (
        str(first.n_devices),
        first.policy,
        "all" if first.lookahead is None else str(first.lookahead),
        _spread([one.utilization_while_waiting_pct for one in group], "{:.1f} %"),
        _spread([one.utilization_pct for one in group], "{:.1f} %"),
        _spread([one.longest_wait_of_oldest for one in group], "{:.2f}"),
    )
    return f"| {' | '.join(cells)} |"


ARRIVALS_HEADER = (
    "| workload | policy | idle while trials wait | less EASY's, in points | makespan "
    "| longest wait of the oldest, in longest attempts | mean wait | of 5 devices and more |\n"
    "|---|---|---|---|---|---|---|---|"
)


def arrivals_table(replays: Sequence[Loaded]) -> str:
    """One row for each workload and policy: means of all seeds; of the longest wait the worst."""
    groups: dict[tuple[str, str], list[Loaded]] = {}
    for one in replays:
        groups.setdefault((one.workload, one.policy), []).append(one)
    rows = (_loaded_row(group, groups[workload, EASY]) for (workload, _), group in groups.items())
    return "\n".join([ARRIVALS_HEADER, *rows])


def _loaded_row(group: Sequence[Loaded], easy: Sequence[Loaded]) -> str:
    more = [
        one.idle_while_waiting_pct - other.idle_while_waiting_pct
        for one, other in zip(group, easy, strict=True)
    ]
    error = stdev(more) / math.sqrt(len(more)) if len(more) > 1 else math.nan
    cells = (
        group[0].workload,
        group[0].policy,
        f"{fmean(one.idle_while_waiting_pct for one in group):.1f} %",
        f"{fmean(more):+.1f} ± {error:.1f}",
        f"{fmean(one.makespan_s for one in group) / 3600:.0f} h",
        f"{max(one.longest_wait_of_oldest for one in group):.2f}",
        f"{fmean(one.mean_wait_s for one in group) / 3600:.1f} h",
        f"{fmean(one.mean_wait_of_wide_s for one in group) / 3600:.1f} h",
    )
    return f"| {' | '.join(cells)} |"


def _spread(values: Sequence[float], form: str) -> str:
    middle, low, high = (form.format(f(values)) for f in (median, min, max))
    return f"{middle} ({low} to {high})"


def parse_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure how trials of all widths are placed.")
    add = parser.add_argument
    add("--devices", type=int, nargs="+", default=[64, 8], help="of the replays, 8 at least")
    add("--trials", type=int, default=2000, help="of each replay")
    add("--sigma", type=float, default=0.5, help="of the logarithm of the durations")
    add("--seeds", type=int, default=5)
    add("--lookahead", type=int, nargs="*", default=[1, 2, 4, 8, 16, 32])
    add("--decisions", type=int, default=5000)
    add("--arrivals", type=int, default=600, help="trials of each heavy-tailed workload")
    add("--chances", type=float, nargs="*", default=[], help="to pass, beside the tuner's")
    add("--only", choices=["decisions", "replays", "arrivals"])
    add("--output", type=Path, default=Path("benchmark-placement.json"))
    return parser.parse_args(words)


def main() -> int:
    args = parse_arguments()
    print(f"{datetime.now(UTC):%Y-%m-%d}, {this_machine()}\n", flush=True)
    figures: dict[str, list[dict[str, object]]] = {}
    for name, measure in MEASURES.items():
        if args.only in (None, name):
            figures[name] = measure(args)
    packages = package_versions(Path(sys.executable), ["tuner"])
    write_json(args.output, packages={"tuner": packages}, figures=figures)
    return 0


def measure_decisions(args: argparse.Namespace) -> list[dict[str, object]]:
    # Where devices are reserved most of the time a decision costs a little more.
    timed = [
        time_decisions(1000, 10_000, args.decisions, policy=policy, seed=0)
        for policy in (TUNERS, PATIENT, "patience 0: reserves at once")
    ]
    print(f"{decisions_table(timed)}\n", flush=True)
    return [asdict(one) for one in timed]


def measure_replays(args: argparse.Namespace) -> list[dict[str, object]]:
    replays = list(replay_all(args))
    print(
        f"{args.trials} trials, durations lognormal with sigma {args.sigma:g}, {args.seeds} seeds\n"
    )
    print(f"{replay_table(replays)}\n", flush=True)
    return [asdict(one) for one in replays]


def measure_arrivals(args: argparse.Namespace) -> list[dict[str, object]]:
    replays = list(replay_arrivals(args))
    print(f"{args.arrivals} trials on {N_DEVICES} devices, seeds 0 to {args.seeds - 1}\n")
    print(f"{arrivals_table(replays)}\n", flush=True)
    return [asdict(one) for one in replays]


MEASURES = {
    "decisions": measure_decisions,
    "replays": measure_replays,
    "arrivals": measure_arrivals,
}


if __name__ == "__main__":
    sys.exit(main())
