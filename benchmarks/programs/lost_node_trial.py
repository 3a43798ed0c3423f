"""A trial of steps of a second that saves each, for the tuner and for Ray Tune alike.

Each step is a line in a file that all nodes share: trial, step, node, time.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

_LOG = Path(os.environ["LOST_NODE_LOG"])
N_STEPS = 100_000


def step(trial: str, number: int) -> None:
    time.sleep(1.0)
    line = {"trial": trial, "step": number, "node": _node(), "at_ns": time.monotonic_ns()}
    with _LOG.open("a") as log:
        log.write(json.dumps(line) + "\n")


def _node() -> str:
    """The host name, which is each node's own; with Ray on one host the node's id."""
    if "RAY_NODE_ID" in os.environ:
        return os.environ["RAY_NODE_ID"]
    return os.uname().nodename


def train(trial: Any) -> float:
    """What the tuner calls."""
    state = trial.load_checkpoint()
    for number in range(state["step"] + 1 if state else 0, N_STEPS):
        step(str(trial.number), number)
        trial.save_checkpoint({"step": number}, number)
        trial.report(0.0, number)
        if trial.should_prune():
            break
    return 0.0


def train_on_ray(config: dict[str, Any]) -> None:
    """What Ray Tune calls."""
    import tempfile

    import ray
    from ray import tune

    os.environ["RAY_NODE_ID"] = ray.get_runtime_context().get_node_id()
    trial = tune.get_context().get_trial_id()
    first = 0
    if (checkpoint := tune.get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder:
            first = int((Path(folder) / "step").read_text()) + 1
    for number in range(first, N_STEPS):
        step(trial, number)
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "step").write_text(str(number))
            tune.report({"value": 0.0}, checkpoint=tune.Checkpoint.from_directory(folder))
