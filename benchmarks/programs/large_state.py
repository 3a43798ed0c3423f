"""A trial that trains on one core and saves a state of 100 MB, again and again."""

import json
import os
import time
from typing import Any

import torch

STATE_BYTES = 100_000_000


def train(trial: Any) -> float:
    torch.set_num_threads(1)
    state = {"weights": torch.randn(STATE_BYTES // 4)}
    weights, inputs = torch.randn(512, 512), torch.randn(512, 512)
    n_saves, between_s = int(os.environ["BENCH_SAVES"]), float(os.environ["BENCH_BETWEEN_S"])
    n_steps = 0
    seconds = {"training": 0.0, "processor": 0.0}
    for save in range(1, n_saves + 1):
        began, began_cpu = time.perf_counter(), time.thread_time()
        # So much processor time of training, whatever else the machine does.
        while time.thread_time() - began_cpu < between_s:
            inputs = torch.tanh(weights @ inputs)
            n_steps += 1
        seconds["training"] += time.perf_counter() - began
        seconds["processor"] += time.thread_time() - began_cpu
        trial.save_checkpoint(state, step=save)
        trial.report(float(save), step=save)
    with open(os.environ["BENCH_OUT"], "w") as file:
        json.dump({**seconds, "steps": n_steps}, file)
    return float(n_steps)
