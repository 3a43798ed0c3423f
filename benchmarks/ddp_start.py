"""From a lease to the first all-reduce of a DDP trial, beside `torchrun` on the same machine.

    python -m benchmarks.ddp_start --ranks 4 --trials 12

One study with room for one trial at a time, so that each starts when the last one has left, and
as many launches of torchrun, one after the other. The first trial, which waits for the imports of
the fork server, and the first launch, which reads torch from disk, are not counted.
"""

import argparse
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from benchmarks.common.machine import package_versions, this_machine
from benchmarks.common.results import write_json
from benchmarks.common.systems import ROOT
from benchmarks.common.workload import PROGRAMS

PROGRAM = "first_all_reduce"
STUDY = """\
study: bench
storage: sqlite:///bench.db
trial: {{function: {program}:train, resources: {{cpus: {ranks}}}}}
search_space: {{x: {{type: float, low: 0.0, high: 1.0}}}}
sampler: random
devices: cpu:{ranks}
budget: {{trials: {trials}}}
"""
LEASED = "select leased_at from tuner_attempts order by id"


def of_the_tuner(folder: Path, ranks: int, trials: int) -> list[float]:
    """Seconds from each trial's lease, as the database has it, to its first all-reduce."""
    (folder / "study.yaml").write_text(STUDY.format(program=PROGRAM, ranks=ranks, trials=trials))
    log = folder / "tuner.log"
    command = [sys.executable, "-m", "tuner.run", "study.yaml"]
    subprocess.run(command, cwd=folder, env=_environment(log), check=True, capture_output=True)
    with sqlite3.connect(folder / "bench.db") as connection:
        leased = [_as_s(text) for (text,) in connection.execute(LEASED)]
    done = [int(line) / 1e9 for line in log.read_text().splitlines()]
    return [end - begin for begin, end in zip(leased, done, strict=True)]


def of_torchrun(folder: Path, ranks: int, launches: int) -> list[float]:
    """Seconds from each launch to its first all-reduce."""
    log = folder / "torchrun.log"
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
        *("--nproc-per-node", str(ranks), f"{PROGRAM}.py"),
    ]
    began = []
    for _ in range(launches):
        began.append(time.time())
        subprocess.run(command, cwd=folder, env=_environment(log), check=True, capture_output=True)
    done = [int(line) / 1e9 for line in log.read_text().splitlines()]
    return [end - begin for begin, end in zip(began, done, strict=True)]


def _environment(log: Path) -> dict[str, str]:
    ours = {"FIRST_ALL_REDUCE_LOG": str(log), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return {**os.environ, **ours}


def _as_s(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def _row(title: str, seconds: Sequence[float]) -> str:
    spread = f"{min(seconds):.2f} to {max(seconds):.2f} s"
    return f"| {title} | {median(seconds):.2f} s | {spread} | {len(seconds)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--output", type=Path, default=Path("benchmark-ddp-start.json"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(PROGRAMS / f"{PROGRAM}.py", folder)
        ours = of_the_tuner(folder, arguments.ranks, arguments.trials)[1:]
        theirs = of_torchrun(folder, arguments.ranks, arguments.trials)[1:]
    print(this_machine())
    print(f"| {arguments.ranks} ranks, gloo | first all-reduce after, median | range | launches |")
    print("|---|---|---|---|")
    print(_row("tuner, from the lease", ours))
    print(_row("torchrun --standalone, from its start", theirs))
    print(f"ratio {median(ours) / median(theirs):.3f}")
    write_json(
        arguments.output,
        packages=package_versions(Path(sys.executable), ["torch"]),
        figures={"tuner_s": ours, "torchrun_s": theirs},
    )


if __name__ == "__main__":
    main()
