"""A table of learning curves whose truth is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.search_quality.systems import EARLIER_TASK
from benchmarks.search_quality.tasks import Task, read_task

NAMES = (
    "batch_size",
    "learning_rate",
    "momentum",
    "weight_decay",
    "num_layers",
    "max_units",
    "max_dropout",
)


def record_task(folder: Path, n_steps: int) -> Task:
    """The larger the momentum the better; a step takes a second.

    Args:
        folder: Gets the table, and the same as that of an earlier study.
        n_steps: Length of each training.
    """
    rng = np.random.default_rng(0)
    low, high = [16, 1e-4, 0.1, 1e-5, 1, 64, 0], [512, 0.1, 0.99, 0.1, 5, 1024, 1]
    x = rng.uniform(low, high, size=(200, len(NAMES)))
    value = x[:, 2:3] * np.arange(1, n_steps + 1)
    seconds = np.tile(np.arange(1.0, n_steps + 1), (200, 1))
    for name in ("lcbench_1.npz", f"lcbench_{EARLIER_TASK}.npz"):
        np.savez(folder / name, names=np.array(NAMES), x=x, value=value, seconds=seconds)
    return read_task(folder / "lcbench_1.npz")
