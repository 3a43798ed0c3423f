"""Programs whose trials are runs of a tracker."""

from __future__ import annotations

#: Three steps; trial 1 fails after them.
TRAIN = """
def train(trial):
    for step in range(1, 4):
        trial.report(trial.params["x"] * step, step)
    if trial.number == 1:
        raise ValueError("no luck")
    return trial.params["x"]
"""
#: The first attempt of trial 0 stays at step 3; the second one begins again at step 1.
STAYS = """
import time

def train(trial):
    for step in range(1, 6):
        trial.report(float(step + 10 * (trial.attempt_number - 1)), step)
        if trial.attempt_number == 1 and step == 3:
            time.sleep(3600)
    return 1.0
"""
