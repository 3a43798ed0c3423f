"""Hugging Face accelerate: checkpoints, devices and mixed precision for an `Accelerator`.

accelerator = Accelerator(**accelerator_arguments(trial))
model, optimizer, batches = accelerator.prepare(model, optimizer, batches)
for epoch in range(load_state(accelerator, trial) + 1, 11):
    ...
    trial.report(accuracy, step=epoch)
    save_state(accelerator, trial, step=epoch)
    if trial.should_prune():
        raise optuna.TrialPruned
"""

from __future__ import annotations

from typing import Any

from accelerate import Accelerator

from tuner.checkpoints.layout import step_of
from tuner.trials.context import TrialContext

__all__ = ["accelerator_arguments", "load_state", "save_state"]


def accelerator_arguments(
    trial: TrialContext, *, mixed_precision: str | None = None
) -> dict[str, Any]:
    """Returns the arguments of `Accelerator` that depend on the trial.

    Args:
        trial: The trial.
        mixed_precision: A precision of accelerate; the default is `bf16` on GPUs that support it,
            `fp16` on other GPUs and `no` on CPUs.
    """
    is_on_gpu = trial.device.type == "cuda"
    return {"cpu": not is_on_gpu, "mixed_precision": mixed_precision or _precision(trial)}


def save_state(accelerator: Accelerator, trial: TrialContext, step: int) -> None:
    """Saves everything that was prepared or registered, with `Accelerator.save_state`.

    Every rank must call it.

    Args:
        accelerator: The accelerator.
        trial: The trial.
        step: The step that the state belongs to.

    Raises:
        OSError: If the state cannot be written. Earlier checkpoints are intact.
    """
    with trial.new_checkpoint(step) as folder:
        accelerator.save_state(str(folder))


def load_state(accelerator: Accelerator, trial: TrialContext) -> int:
    """Loads the newest checkpoint, with `Accelerator.load_state`.

    Every rank must call it, after `prepare`.

    Returns:
        The step of the checkpoint; 0 if there is none.
    """
    folder = trial.newest_checkpoint()
    if folder is None:
        return 0
    accelerator.load_state(str(folder))
    return step_of(folder)


def _precision(trial: TrialContext) -> str:
    if trial.device.type != "cuda":
        return "no"
    import torch

    return "bf16" if torch.cuda.is_bf16_supported(False) else "fp16"
