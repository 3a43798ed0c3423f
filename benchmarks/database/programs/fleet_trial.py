"""The trial program of both systems: it sleeps, and writes down when. It imports next to nothing.

It is copied into the folder of a run. `FLEET_SECONDS` is how long it sleeps, `FLEET_EVENTS` the
file that all trials append to.
"""

import json
import os
import time
from typing import Any

_EVENTS = os.open(os.environ["FLEET_EVENTS"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
_SECONDS = float(os.environ["FLEET_SECONDS"])


def train_for(x: float, number: int) -> float:
    start_ns = time.monotonic_ns()
    time.sleep(_SECONDS)
    event = {"slot": None, "trial": str(number), "pid": os.getpid(), "start_ns": start_ns}
    # One short write to a file opened for appending: lines of different processes don't mix.
    os.write(_EVENTS, (json.dumps(event | {"end_ns": time.monotonic_ns()}) + "\n").encode())
    return x


def train(trial: Any) -> float:
    """What the tuner calls."""
    return train_for(trial.params.x, trial.number)
