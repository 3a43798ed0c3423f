"""From a lease to the first result computed on a GPU, beside `python train.py`; and the way back.

    python -m benchmarks.gpu_start --trials 20
    python -m benchmarks.gpu_start --trials 32 --share 0.25 --seconds 2

Needs an NVIDIA GPU. A trial multiplies two matrices on the GPU and computes for a while; the
program is the same for all. The first trial of each slot, which waits for the imports of the fork
server, and the first start of Python, which reads torch from disk, are not counted.
"""

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import median

import pynvml

from benchmarks.common.machine import package_versions, this_machine
from benchmarks.common.results import write_json
from benchmarks.common.systems import ROOT

PROGRAM = """\
import json
import os
import time

import torch


def train(trial):
    first = time.time()
    x = torch.randn(256, 256, device="cuda")
    (x @ x).sum().item()
    computed = time.time()
    while time.time() < computed + float(os.environ["BENCH_SECONDS"]):
        (x @ x).sum().item()
        time.sleep(0.01)
    number = None if trial is None else trial.number
    line = {"number": number, "first": first, "computed": computed, "end": time.time()}
    with open("events.jsonl", "a") as log:
        log.write(json.dumps(line) + "\\n")
    return 1.0


if __name__ == "__main__":
    train(None)
"""
STUDY = """\
study: bench
storage: sqlite:///bench.db
objectives: {{loss: minimize}}
trial: {{function: program:train, resources: {{gpus: {share:g}}}}}
search_space: {{x: {{type: float, low: 0.0, high: 1.0}}}}
sampler: random
devices: [0]
budget: {{trials: {trials}}}
"""
TIMES = """
    select trials.number, a.leased_at, a.finished_at from tuner_attempts a
    join trials on trials.trial_id = a.trial_id order by a.id
"""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Seconds since the epoch: the lease, three lines of the program, and the release."""

    leased: float
    first: float
    computed: float
    end: float
    released: float


def of_the_tuner(
    folder: Path, share: float, trials: int, seconds: float
) -> tuple[float, list[Trial]]:
    """Gives the wall time of the command, and its trials in the order of their first lines."""
    (folder / "study.yaml").write_text(STUDY.format(share=share, trials=trials))
    began = time.monotonic()
    _run(folder, ["-m", "tuner.run", "study.yaml"], seconds)
    wall_s = time.monotonic() - began
    with sqlite3.connect(folder / "bench.db") as connection:
        rows = {number: (_as_s(a), _as_s(b)) for number, a, b in connection.execute(TIMES)}
    found = []
    for line in _events(folder):
        leased, released = rows[line.pop("number")]
        found.append(Trial(leased=leased, released=released, **line))
    return wall_s, sorted(found, key=lambda each: each.first)


def of_python(folder: Path, starts: int) -> list[tuple[float, float]]:
    """Seconds from each start of Python to its first line and to its first result."""
    found = []
    for _ in range(starts):
        began = time.time()
        _run(folder, ["program.py"], 0.0)
        (line,) = _events(folder)
        found.append((line["first"] - began, line["computed"] - began))
    return found


def _run(folder: Path, words: Sequence[str], seconds: float) -> None:
    ours = {"BENCH_SECONDS": str(seconds), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *words]
    subprocess.run(command, cwd=folder, env={**os.environ, **ours}, check=True, capture_output=True)


def _events(folder: Path) -> list[dict[str, float]]:
    """What the program has written since the last call."""
    log = folder / "events.jsonl"
    lines = log.read_text().splitlines()
    log.unlink()
    return [json.loads(line) for line in lines]


def _as_s(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def _row(title: str, seconds: Sequence[float]) -> str:
    spread = f"{min(seconds):.3f} to {max(seconds):.3f} s"
    return f"| {title} | {median(seconds):.3f} s | {spread} | {len(seconds)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--starts", type=int, default=5, help="of Python")
    parser.add_argument("--share", type=float, default=1.0, help="of the GPU, for each trial")
    parser.add_argument("--seconds", type=float, default=0.5, help="that a trial computes")
    parser.add_argument("--output", type=Path, default=Path("benchmark-gpu-start.json"))
    arguments = parser.parse_args()
    try:
        pynvml.nvmlInit()
        name = pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(0))
    except pynvml.NVMLError as error:
        sys.exit(f"This needs an NVIDIA GPU: {error}")
    slots = round(1 / arguments.share)
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        (folder / "program.py").write_text(PROGRAM)
        wall_s, trials = of_the_tuner(folder, arguments.share, arguments.trials, arguments.seconds)
        starts = of_python(folder, arguments.starts + 1)[1:] if arguments.starts else []
    counted = trials[slots:]
    work_s = sum(each.end - each.first for each in trials)
    between_s = max(each.end for each in trials) - min(each.first for each in trials)
    print(this_machine(), name)
    print(f"| {slots} at once | median | range | n |")
    print("|---|---|---|---|")
    print(_row("tuner: lease to the first line", [each.first - each.leased for each in counted]))
    print(
        _row("tuner: lease to the first result", [each.computed - each.leased for each in counted])
    )
    print(_row("tuner: last line to the release", [each.released - each.end for each in counted]))
    if starts:
        print(_row("python program.py: to the first line", [first for first, _ in starts]))
        print(_row("python program.py: to the first result", [result for _, result in starts]))
    if slots == 1:
        pauses = [after.first - before.end for before, after in pairwise(counted)]
        print(_row("tuner: last line to the next first line", pauses))
    print(
        f"{len(trials)} trials, {work_s:.1f} s of work: {work_s / slots / wall_s:.3f} of {slots} x "
        f"{wall_s:.1f} s, {work_s / slots / between_s:.3f} from the first line to the last"
    )
    write_json(
        arguments.output,
        packages=package_versions(Path(sys.executable), ["torch"]) | {"gpu": str(name)},
        figures={"wall_s": wall_s, "trials": [asdict(each) for each in trials], "python_s": starts},
    )


if __name__ == "__main__":
    main()
