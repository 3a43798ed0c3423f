"""The training program of the studies in chaos: its result shows whether every step was done.

A number is carried from step to step, through checkpoints too; each step changes it in a way that
no other step does. Who skips one, does one twice or goes on from another trial's state ends with
another number. Each step also leaves a line in a file, so that repeated work can be counted.

It has habits of real programs: every second trial asks `should_prune` at each third step only,
each saves before it leaves and does something after its last step, and every third trial returns
nothing, so that its last report is its result.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

import optuna

ENV_LOG = "CHAOS_STEP_LOG"
#: Seconds of a step, where they are not STEP_S.
ENV_STEP_S = "CHAOS_STEP_S"
#: Number of the machine, in the place of its PID namespace: the kernel gives out the number of a
#: namespace that is gone again.
ENV_MACHINE = "CHAOS_MACHINE"
#: Seconds since the epoch at which the monotonic clock was 0, where the wall clock is not right.
ENV_EPOCH = "CHAOS_EPOCH"
N_STEPS = 16
SAVE_EVERY = 2
STEP_S = 0.2
#: What comes after the last step: an evaluation, plots, an upload.
POST_S = 0.4
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


def train(trial: Any) -> float | None:
    note(trial, "begun", 0)
    with _group(trial):
        step, number = _resume(trial)
        while step < N_STEPS:
            time.sleep(float(os.environ.get(ENV_STEP_S, STEP_S)))
            _use_gpu()
            number = next_number(number, step, _count_ranks(trial))
            note(trial, "step", step)
            step += 1
            if trial.is_main and (step % SAVE_EVERY == 0 or step == N_STEPS):
                trial.save_checkpoint(_state(step, number), step)
                note(trial, "saved", step)
            trial.report(number / _MODULUS, step - 1)
            if step % asks_every(trial.number) == 0 and trial.should_prune():
                _leave(trial, step, number)
        note(trial, "post", step)
        time.sleep(POST_S)
    return None if returns_nothing(trial.number) else number / _MODULUS


def asks_every(trial_number: int) -> int:
    """Steps between two questions of `should_prune`."""
    return 3 if trial_number % 2 else 1


def returns_nothing(trial_number: int) -> bool:
    """Whether the last report of a trial is its result."""
    return trial_number % 3 == 0


def _leave(trial: Any, step: int, number: int) -> None:
    if trial.is_main and step % SAVE_EVERY and step != N_STEPS:
        trial.save_checkpoint(_state(step, number), step)
        note(trial, "saved", step)
    note(trial, "left", step - 1)
    raise optuna.TrialPruned


def note(trial: Any, what: str, step: int) -> None:
    """One line, in one write: other processes append to the same file."""
    machine = os.environ.get(ENV_MACHINE) or os.stat("/proc/self/ns/pid").st_ino
    where = (os.getpid(), machine)
    words = (what, trial.number, trial.attempt_number, trial.rank, step, *where, now_s())
    log = os.open(os.environ[ENV_LOG], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(log, (" ".join(map(str, words)) + "\n").encode())
    os.close(log)


def now_s() -> float:
    """Seconds since the epoch, the same on all machines of a run."""
    epoch = os.environ.get(ENV_EPOCH)
    return time.time() if epoch is None else float(epoch) + time.monotonic()


def _state(step: int, number: int) -> dict[str, Any]:
    import torch

    ballast = torch.arange(number % 1000, number % 1000 + N_BALLAST, dtype=torch.int32)
    return {"step": step, "number": number, "ballast": ballast}


def _is_right(state: Mapping[str, Any]) -> bool:
    """Whether a state is byte for byte what was saved; a damaged one must never get here."""
    import torch

    return torch.equal(state["ballast"], _state(state["step"], state["number"])["ballast"])


def _resume(trial: Any) -> tuple[int, int]:
    state = trial.load_checkpoint()
    step, number = (0, first_number(trial.params.x))
    if state is not None:
        step, number = state["step"], state["number"]
        if not _is_right(state):
            number += 1  # From here on each value is wrong, and the judge finds it.
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
    from tuner import ddp

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
