"""Lightning: reports, pruning, checkpoints and devices for its `Trainer`.

trainer = L.Trainer(
    max_epochs=10,
    callbacks=[TrialCallback(trial, "val_loss")],
    **trainer_arguments(trial),
)
with ddp.group(trial):
    trainer.fit(model, data, ckpt_path=resume_path(trial))
"""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

import optuna
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.plugins.environments import LightningEnvironment

from tuner.trials.context import TrialContext

__all__ = ["TrialCallback", "resume_path", "trainer_arguments"]

_FILE = "lightning.ckpt"


class TrialCallback(Checkpoint):
    """Reports a metric after each validation, saves a checkpoint and ends a pruned trial.

    The step of a report is the number of validations so far, from 1. With several ranks, log the
    metric with `sync_dist=True`; the value of rank 0 counts.

    Args:
        trial: The trial.
        monitor: Name of a metric that the model logs, such as `val_loss`. With several
            objectives, a mapping from objectives to metrics.
        save: Whether to save a checkpoint after each validation. Without it a trial cannot be
            paused and resumed.
    """

    def __init__(
        self, trial: TrialContext, monitor: str | dict[str, str], *, save: bool = True
    ) -> None:
        super().__init__()
        self._trial = trial
        self._monitor = monitor
        self._save = save
        self._n_validations = 0
        self._metrics: dict[str, float] = {}
        self._on_sigterm = signal.getsignal(signal.SIGTERM)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Takes SIGTERM back from Lightning, which would end without a checkpoint."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._on_sigterm)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restores a resumed trial's metrics of its last validation.

        Lightning first ends the interrupted epoch, without a validation. `EarlyStopping` and
        schedulers such as `ReduceLROnPlateau` need the metrics there.
        """
        for name, value in self._metrics.items():
            trainer.callback_metrics.setdefault(name, torch.tensor(value))

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Reports, saves, and checks whether the trial must end.

        Raises:
            KeyError: If the model does not log the metric.
            optuna.TrialPruned: If the trial must end.
        """
        if trainer.sanity_checking or trainer.state.fn != "fit":
            return
        self._n_validations += 1
        step = self._n_validations
        self._trial.report(self._values(trainer), step=step)
        self._metrics = {name: float(each) for name, each in trainer.callback_metrics.items()}
        if self._save:
            with self._trial.new_checkpoint(step) as folder:
                trainer.save_checkpoint(folder / _FILE)
        if self._trial.should_prune():
            raise optuna.TrialPruned

    def state_dict(self) -> dict[str, Any]:
        """The state that Lightning saves for this callback."""
        return {"n_validations": self._n_validations, "metrics": self._metrics}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continues from what `state_dict` returned."""
        self._n_validations = state_dict["n_validations"]
        self._metrics = state_dict.get("metrics", {})

    def _values(self, trainer: Trainer) -> float | dict[str, float]:
        if isinstance(self._monitor, str):
            return _metric(trainer, self._monitor)
        return {name: _metric(trainer, metric) for name, metric in self._monitor.items()}


def trainer_arguments(trial: TrialContext, *, precision: str | None = None) -> dict[str, Any]:
    """Returns the arguments of `lightning.Trainer` that depend on the trial.

    These are `accelerator`, `devices`, `precision`, `default_root_dir` and, with several ranks,
    `strategy="ddp"` and the environment in which the tuner has started the ranks. To change one:
    `Trainer(**{**trainer_arguments(trial), "strategy": "fsdp"})`.

    Args:
        trial: The trial.
        precision: A precision of Lightning; the default is `bf16-mixed` on GPUs that support it,
            `16-mixed` on other GPUs and `32-true` on CPUs.

    Raises:
        ValueError: If one process has several GPUs.
    """
    if trial.world_size == 1 and len(trial.devices) > 1 and trial.device.type == "cuda":
        raise ValueError(
            f"This process has {len(trial.devices)} GPUs, but Lightning needs a process for each. "
            "Write in the study file: trial: {parallel: ddp}"
        )
    arguments: dict[str, Any] = {
        "accelerator": "gpu" if trial.device.type == "cuda" else "cpu",
        "devices": trial.world_size,
        "precision": precision or _precision(trial),
        "default_root_dir": trial.checkpoint_dir,
        "plugins": [_TrialEnvironment()],
    }
    if trial.world_size > 1:
        arguments["strategy"] = "ddp"
    return arguments


def resume_path(trial: TrialContext) -> Path | None:
    """Returns the newest checkpoint for `Trainer.fit(ckpt_path=...)`, or None."""
    folder = trial.newest_checkpoint()
    return None if folder is None else folder / _FILE


class _TrialEnvironment(LightningEnvironment):
    """Ranks that the tuner has started; Lightning starts none and ignores Slurm."""

    @property
    def creates_processes_externally(self) -> bool:
        return True

    def teardown(self) -> None:
        """Lightning would remove WORLD_SIZE, which the trial needs until its end."""


def _precision(trial: TrialContext) -> str:
    if trial.device.type != "cuda":
        return "32-true"
    return "bf16-mixed" if torch.cuda.is_bf16_supported(False) else "16-mixed"


def _metric(trainer: Trainer, name: str) -> float:
    if name not in trainer.callback_metrics:
        found = ", ".join(sorted(trainer.callback_metrics)) or "no metric"
        raise KeyError(
            f"The model does not log {name!r}. It logs {found}. In validation_step write: "
            f"self.log({name!r}, value, sync_dist=True)"
        )
    return float(trainer.callback_metrics[name])
