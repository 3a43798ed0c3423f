"""What `kill -9` of the dispatcher costs: until the devices are free, until they work again.

    python -m benchmarks.killed --slots 4 --repeats 7

Each repeat kills a dispatcher whose slots are all at work, and types the same command again at
once. The guardian ends what ran, the new dispatcher goes on from the checkpoints.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import psutil

from benchmarks.common.machine import package_versions, this_machine
from benchmarks.common.processes import started
from benchmarks.common.results import write_json
from benchmarks.common.systems import ROOT
from benchmarks.common.workload import PROGRAMS

PROGRAM = "saving_trial"
STUDY = """\
study: bench
storage: sqlite:///bench.db
trial: {{function: {program}:train}}
search_space: {{x: {{type: float, low: 0.0, high: 1.0}}}}
sampler: random
devices: cpu:{slots}
budget: {{trials: {slots}}}
"""
LIMIT_S = 120.0
POLL_S = 0.002


@dataclass(frozen=True, kw_only=True)
class Line:
    """What a trial noted."""

    what: str
    trial: int
    step: int
    pid: int
    at_s: float


@dataclass(frozen=True, kw_only=True)
class Loss:
    """What one kill cost, a mean over the slots in seconds."""

    #: From the kill until no process of a trial was left.
    free_after_s: float
    #: From the kill until a trial has its state again and goes on.
    idle_s: float
    #: Work after the last checkpoint, which is done again.
    again_s: float
    #: Steps whose state was saved and that were done again: none should be.
    n_saved_again: int


def lines_of(log: Path) -> list[Line]:
    rows = (text.split() for text in log.read_text().splitlines()) if log.exists() else ()
    return [
        Line(what=what, trial=int(trial), step=int(step), pid=int(pid), at_s=int(at_ns) / 1e9)
        for what, trial, step, pid, at_ns in rows
    ]


def kill_once(folder: Path, slots: int, step_s: float, delay_s: float) -> Loss:
    """Lets all slots work, kills the dispatcher, and looks at how they go on.

    Args:
        folder: With a study.
        slots: How many trials run.
        step_s: How long a step takes.
        delay_s: From the first checkpoint of the last slot to the kill.
    """
    log = folder / "steps.log"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "SAVING_LOG": str(log)}
    command = [sys.executable, "-m", "tuner.run", "study.yaml"]
    (folder / "first").mkdir()
    (folder / "second").mkdir()
    with started(["env", "-C", str(folder), *command], folder=folder / "first", env=env) as first:
        wait_until(lambda: len(trials(lines_of(log), "saved")) == slots)
        time.sleep(delay_s)
        first.send_signal(signal.SIGKILL)
        killed_at_s = time.monotonic()
        before = lines_of(log)
        second = ["env", "-C", str(folder), *command]
        with started(second, folder=folder / "second", env=env):
            wait_until(lambda: not any(map(is_alive, {line.pid for line in before})))
            free_after_s = time.monotonic() - killed_at_s
            seen = len(before)
            wait_until(lambda: len(trials(lines_of(log)[seen:], "from")) == slots)
            return loss_of(lines_of(log), killed_at_s, free_after_s, step_s)


def loss_of(lines: Sequence[Line], killed_at_s: float, free_after_s: float, step_s: float) -> Loss:
    idle_s, again_s, n_saved_again = [], [], 0
    numbers = trials(lines, "saved")
    for number in numbers:
        own = [line for line in lines if line.trial == number]
        last = max(n for n, line in enumerate(own) if line.what == "from")
        done = [line.step + 1 for line in own[:last] if line.what == "step"]
        saved = [line.step for line in own[:last] if line.what == "saved"]
        idle_s.append(own[last].at_s - killed_at_s)
        again_s.append((max(done) - own[last].step) * step_s)
        n_saved_again += max(0, max(saved) - own[last].step)
    return Loss(
        free_after_s=free_after_s,
        idle_s=sum(idle_s) / len(numbers),
        again_s=sum(again_s) / len(numbers),
        n_saved_again=n_saved_again,
    )


def trials(lines: Sequence[Line], what: str) -> set[int]:
    return {line.trial for line in lines if line.what == what}


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until(condition: Callable[[], bool]) -> None:
    give_up_at_s = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > give_up_at_s:
            raise TimeoutError(f"It did not come to be within {LIMIT_S:.0f} s.")
        time.sleep(POLL_S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--step", type=float, default=0.1, help="seconds")
    parser.add_argument("--save-every", type=int, default=10, help="steps")
    parser.add_argument("--output", type=Path, default=Path("benchmark-killed.json"))
    given = parser.parse_args()
    os.environ |= {"SAVING_STEP_S": str(given.step), "SAVING_EVERY": str(given.save_every)}
    losses, chance = [], random.Random(0)
    for _ in range(given.repeats):
        with tempfile.TemporaryDirectory() as name:
            shutil.copy(PROGRAMS / f"{PROGRAM}.py", name)
            study = STUDY.format(program=PROGRAM, slots=given.slots)
            Path(name, "study.yaml").write_text(study)
            delay_s = chance.uniform(0.0, given.step * given.save_every)
            losses.append(kill_once(Path(name), given.slots, given.step, delay_s))
    print(this_machine())
    print(f"| of each of {given.slots} slots, {given.repeats} kills | median | range |")
    print("|---|---|---|")
    for title, key in (
        ("device free after", "free_after_s"),
        ("work goes on after", "idle_s"),
        ("work done again", "again_s"),
    ):
        figures = [float(asdict(loss)[key]) for loss in losses]
        spread = f"{min(figures):.2f} to {max(figures):.2f} s"
        print(f"| {title} | {median(figures):.2f} s | {spread} |")
    print(f"saved steps done again: {sum(loss.n_saved_again for loss in losses)}")
    write_json(
        given.output,
        packages=package_versions(Path(sys.executable), ["torch", "optuna"]),
        figures={"losses": [asdict(loss) for loss in losses]},
    )


if __name__ == "__main__":
    main()
