"""A trial that works in small steps and saves now and then; each step leaves a line.

A line is `from`, `step` or `saved`, the trial, the step, the process and the time in nanoseconds.
"""

import os
import time
from typing import Any

N_STEPS = 1_000_000
STEP_S = float(os.environ.get("SAVING_STEP_S", "0.1"))
SAVE_EVERY = int(os.environ.get("SAVING_EVERY", "10"))


def train(trial: Any) -> float:
    state = trial.load_checkpoint()
    first = 0 if state is None else state["step"]
    _note("from", trial, first)
    for step in range(first, N_STEPS):
        time.sleep(STEP_S)
        _note("step", trial, step)
        if (step + 1) % SAVE_EVERY == 0:
            trial.save_checkpoint({"step": step + 1}, step + 1)
            _note("saved", trial, step + 1)
        trial.report(float(step), step)
    return 0.0


def _note(what: str, trial: Any, step: int) -> None:
    line = f"{what} {trial.number} {step} {os.getpid()} {time.monotonic_ns()}\n"
    log = os.open(os.environ["SAVING_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(log, line.encode())
    os.close(log)
