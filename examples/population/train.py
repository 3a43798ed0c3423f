"""SGD on a noisy quadratic: no constant learning rate is as good as one that falls.

What is trained is the expectation over all noise (Zhang et al. 2019, arXiv:1907.04164, section 3):
a large rate is quick and ends on a high floor, a small one ends low and takes for ever.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import optuna
import torch

from tuner import TrialContext

N_STEPS = 60
#: Of a step: something real takes longer than to launch a member.
STEP_S = float(os.environ.get("STEP_S", "0.1"))
CURVATURE = torch.tensor([1.0, 0.3], dtype=torch.float64)


def start() -> torch.Tensor:
    """Mean squares of the weights, before the first step."""
    return torch.full((2,), 100.0, dtype=torch.float64)


def sgd_step(squares: torch.Tensor, lr: float) -> torch.Tensor:
    """One step of SGD, with gradients whose noise has the variance of the curvature's square."""
    shrunk = (1.0 - lr * CURVATURE) ** 2 * squares
    return shrunk + (lr * CURVATURE) ** 2


def loss_of(squares: torch.Tensor) -> float:
    return float(0.5 * (CURVATURE * squares).sum())


def loss_with(lr_at: Callable[[int], float]) -> float:
    """A whole training with a learning rate for each step, from 1."""
    squares = start()
    for step in range(1, N_STEPS + 1):
        squares = sgd_step(squares, lr_at(step))
    return loss_of(squares)


def train(trial: TrialContext) -> float:
    """A copy finds its parent's checkpoint where another trial finds its own."""
    squares, done = start(), 0
    if state := trial.load_checkpoint():
        squares, done = state["squares"], state["step"]
    for step in range(done + 1, N_STEPS + 1):
        time.sleep(STEP_S)
        squares = sgd_step(squares, trial.params.lr)
        trial.save_checkpoint({"squares": squares, "step": step}, step)
        trial.report(loss_of(squares), step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return loss_of(squares)
