"""How much memory the tuner's dispatcher takes with many slots, and whether torch is in it.

    python -m benchmarks.memory --slots 64

Starts `python -m tuner.run` as a user would, and reads /proc while it runs.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from benchmarks.common.machine import package_versions, this_machine
from benchmarks.common.measures import peak_concurrency
from benchmarks.common.processes import last_lines, started
from benchmarks.common.results import write_json
from benchmarks.common.systems import SYSTEMS
from benchmarks.common.workload import Workload, read_spans, write_folder
from benchmarks.peers import DEFAULT_VENVS

MB = 1_000_000
EVERY_S = 0.5


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One look at the dispatcher. PSS counts a shared page by its share of the sharers."""

    rss_bytes: int
    pss_bytes: int | None
    torch_mapped: bool
    children: int


@dataclass(frozen=True, kw_only=True)
class Memory:
    """The largest of all looks, while `peak_trials` ran at once."""

    slots: int
    peak_rss_bytes: int
    peak_pss_bytes: int | None
    torch_mapped: bool
    peak_children: int
    peak_trials: int
    samples: int
    exit_code: int | None


def sample(pid: int) -> Sample | None:
    """Look at a process, or None where it has ended."""
    try:
        process = psutil.Process(pid)
        rss_bytes = process.memory_info().rss
        maps = Path(f"/proc/{pid}/maps").read_text()
        if not maps:  # it has ended, and waits to be reaped
            return None
        return Sample(
            rss_bytes=rss_bytes,
            pss_bytes=pss_bytes(pid),
            torch_mapped="libtorch" in maps,
            children=len(process.children(recursive=True)),
        )
    except (psutil.Error, OSError):
        return None


def pss_bytes(pid: int) -> int | None:
    """The proportional share, or None where the kernel doesn't tell."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    kib = [int(line.split()[1]) for line in lines if line.startswith("Pss:")]
    return kib[0] * 1024 if kib else None


def watch(process: subprocess.Popen[bytes], *, limit_s: float) -> list[Sample]:
    """Look until the process ends or the limit is reached."""
    samples = []
    for _ in range(int(limit_s / EVERY_S)):
        with suppress(subprocess.TimeoutExpired):
            process.wait(EVERY_S)
            break
        seen = sample(process.pid)
        if seen is not None:
            samples.append(seen)
    return samples


def measure(workload: Workload, *, limit_s: float) -> Memory:
    folder = Path(tempfile.mkdtemp(prefix="bench-memory-"))
    write_folder(folder, workload)
    tuner = SYSTEMS["tuner"]
    command = tuner.command(DEFAULT_VENVS)
    with started(command, folder=folder, env=tuner.environment(folder)) as process:
        samples = watch(process, limit_s=limit_s)
        exit_code = process.poll()
    if exit_code == 0:
        memory = summarise(workload, samples, folder=folder)
        shutil.rmtree(folder)
        return memory
    raise SystemExit(
        f"{' '.join(command)} ended with {exit_code}; its folder is {folder}.\n{last_lines(folder)}"
    )


def summarise(workload: Workload, samples: Sequence[Sample], *, folder: Path) -> Memory:
    shares = [one.pss_bytes for one in samples if one.pss_bytes is not None]
    return Memory(
        slots=workload.slots,
        peak_rss_bytes=max(one.rss_bytes for one in samples),
        peak_pss_bytes=max(shares, default=None),
        torch_mapped=any(one.torch_mapped for one in samples),
        peak_children=max(one.children for one in samples),
        peak_trials=peak_concurrency(read_spans(folder)),
        samples=len(samples),
        exit_code=0,
    )


def table(memory: Memory) -> str:
    pss = "-" if memory.peak_pss_bytes is None else f"{memory.peak_pss_bytes / MB:.0f} MB"
    return (
        "| slots | dispatcher RSS, peak | dispatcher PSS, peak | torch in it | trials at once |\n"
        "|---|---|---|---|---|\n"
        f"| {memory.slots} | {memory.peak_rss_bytes / MB:.0f} MB | {pss} | "
        f"{'yes' if memory.torch_mapped else 'no'} | {memory.peak_trials} |"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the memory of the dispatcher.")
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--trials", type=int, help="as many as slots, if absent")
    parser.add_argument("--duration", type=float, default=5.0, help="seconds per trial")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds in all")
    parser.add_argument("--output", type=Path, default=Path("benchmark-memory.json"))
    args = parser.parse_args()
    workload = Workload(
        slots=args.slots, trials=args.trials or args.slots, duration_s=args.duration
    )
    print(f"{this_machine()}\ntuner: {workload}", flush=True)
    memory = measure(workload, limit_s=args.limit)
    tuner = SYSTEMS["tuner"]
    packages = package_versions(tuner.python(DEFAULT_VENVS), tuner.packages)
    write_json(args.output, packages={"tuner": packages}, figures=asdict(memory))
    print(f"\n{table(memory)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
