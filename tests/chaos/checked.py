"""The training program of the studies in chaos: its result shows whether every step was done.

A number is carried from step to step, through checkpoints too; each step changes it in a way that
no other step does. Who skips one, does one twice or goes on from another trial's state ends with
another number. Each step also leaves a line in a file, so that repeated work can be counted.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

import optuna

ENV_LOG = "CHAOS_STEP_LOG"
N_STEPS = 16
SAVE_EVERY = 2
STEP_S = 0.2
#: So that a few dozen checkpoints fill the small disk.
N_BALLAST = 25_000
_MODULUS = 2**31 - 1
_MULTIPLIER = 48_271  # Park and Miller's; any primitive root does.


def first_number(x: float) -> int:
    return 1 + round(x * 1e9)


def next_number(number: int, step: int, n_ranks: int) -> int:
    return (number * _MULTIPLIER + step * n_ranks + 1) % _MODULUS


def expected_value(params: Mapping[str, Any], n_steps: int = N_STEPS) -> float:
    """What a trial with these parameters must return, or report after so many steps."""
    number = first_number(params["x"])
    for step in range(n_steps):
        number = next_number(number, step, params.get("ranks", 1))
    return number / _MODULUS


def train(trial: Any) -> float:
    note(trial, "begun", 0)
    with _group(trial):
        step, number = _resume(trial)
        while step < N_STEPS:
            time.sleep(STEP_S)
            _use_gpu()
            number = next_number(number, step, _count_ranks(trial))
            note(trial, "step", step)
            step += 1
            if trial.is_main and (step % SAVE_EVERY == 0 or step == N_STEPS):
                trial.save_checkpoint(_state(step, number), step)
                note(trial, "saved", step)
            trial.report(number / _MODULUS, step - 1)
            if trial.should_prune():
                note(trial, "left", step - 1)
                raise optuna.TrialPruned
    return number / _MODULUS


def note(trial: Any, what: str, step: int) -> None:
    """One line, in one write: other processes append to the same file."""
    words = (what, trial.number, trial.attempt_number, trial.rank, step, os.getpid(), time.time())
    log = os.open(os.environ[ENV_LOG], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(log, (" ".join(map(str, words)) + "\n").encode())
    os.close(log)


def _state(step: int, number: int) -> dict[str, Any]:
    import torch

    return {"step": step, "number": number, "ballast": torch.zeros(N_BALLAST)}


def _resume(trial: Any) -> tuple[int, int]:
    state = trial.load_checkpoint()
    step, number = (0, first_number(trial.params.x))
    if state is not None:
        step, number = state["step"], state["number"]
    note(trial, "from", step)
    if trial.world_size > 1:
        import torch.distributed as dist

        dist.barrier()  # None saves before all have read.
    return step, number


@contextlib.contextmanager
def _group(trial: Any) -> Iterator[None]:
    if trial.world_size == 1:
        yield
        return
    from trials import ddp

    with ddp.group(trial):
        yield


def _count_ranks(trial: Any) -> int:
    if trial.world_size == 1:
        return 1
    import torch
    import torch.distributed as dist

    ones = torch.ones(1, dtype=torch.int64)
    dist.all_reduce(ones)
    return int(ones)


def _use_gpu() -> None:
    """Fails as CUDA does where the stand-in GPU is gone."""
    if "FAKE_NVML" not in os.environ:
        return
    import pynvml

    pynvml.nvmlInit()
    try:
        gpu = pynvml.nvmlDeviceGetHandleByUUID(os.environ["CUDA_VISIBLE_DEVICES"])
        pynvml.nvmlDeviceGetMemoryInfo(gpu)
    except pynvml.NVMLError_GpuIsLost as error:
        raise RuntimeError("CUDA error: unknown error (GPU is lost)") from error
