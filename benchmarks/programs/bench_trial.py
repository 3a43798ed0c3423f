"""The one trial program that every system runs: torch is imported, and the training sleeps.

It is copied into the folder of a run, beside `workload.json` (what to do) and `events.jsonl`
(what was done). It imports nothing of ours, so that it runs in every peer's environment.
"""

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

# Every real trial pays for this import, so every system pays for it here.
import torch

FOLDER = Path(__file__).resolve().parent
WORKLOAD: Mapping[str, Any] = json.loads((FOLDER / "workload.json").read_text())


def train_for(x: float, report: Callable[[float], None], *, slot: str | None) -> float:
    """Report a value, train for the workload's duration, and write down when."""
    start_ns = time.monotonic_ns()
    value = float(torch.tensor(x))
    report(value)
    time.sleep(WORKLOAD["duration_s"])
    _append_event(slot=slot, trial=repr(x), start_ns=start_ns)
    return value


def _append_event(*, slot: str | None, trial: str, start_ns: int) -> None:
    event = {"slot": slot, "trial": trial, "pid": os.getpid(), "start_ns": start_ns}
    line = json.dumps(event | {"end_ns": time.monotonic_ns()}) + "\n"
    # One short write to a file opened for appending: lines of different processes don't mix.
    file = os.open(FOLDER / "events.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(file, line.encode())
    os.close(file)


def train(trial: Any) -> float:
    """What the tuner calls, with its TrialContext."""
    return train_for(
        trial.params.x,
        lambda value: trial.report(value, step=1),
        slot=os.environ.get("TUNER_DEVICES"),
    )
