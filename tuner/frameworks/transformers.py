"""Hugging Face transformers: reports, pruning, checkpoints and devices for its `Trainer`.

arguments = TrainingArguments(num_train_epochs=3, **training_arguments(trial))
trainer = Trainer(model=model, args=arguments, ..., callbacks=[TrialCallback(trial)])
trainer.train(resume_from_checkpoint=resume_path(trial))
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna
from safetensors import safe_open
from transformers import (
    PreTrainedModel,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from tuner.trials.context import TrialContext

__all__ = ["TrialCallback", "resume_path", "training_arguments"]

_OUTPUT = "transformers"


class TrialCallback(TrainerCallback):
    """Reports a metric after each evaluation, saves a checkpoint and ends a pruned trial.

    The step of a report is the number of evaluations so far, from 1.

    Args:
        trial: The trial.
        metric: Name of a metric of the evaluation, such as `eval_accuracy`. With several
            objectives, a mapping from objectives to metrics.
    """

    def __init__(self, trial: TrialContext, metric: str | Mapping[str, str] = "eval_loss") -> None:
        self._trial = trial
        self._metric = metric

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        **kwargs: Any,
    ) -> None:
        """Loads weights that the trainer of transformers 5 does not find when it resumes.

        Some models, such as ViT, save their weights under other names than those that they have in
        memory. `from_pretrained` translates the names, but the trainer does not.
        """
        if state.global_step == 0 or not isinstance(model, PreTrainedModel):
            return
        folder = self._trial.newest_checkpoint()
        if folder is not None and _saved_names(folder) - set(model.state_dict()):
            saved = type(model).from_pretrained(folder, dtype=model.dtype)
            model.load_state_dict(saved.state_dict())

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: Mapping[str, float],
        **kwargs: Any,
    ) -> None:
        """Reports, and makes the trainer save.

        Raises:
            KeyError: If the evaluation has no such metric.
        """
        if state.global_step == 0:  # An evaluation before the training.
            return
        self._trial.report(self._values(metrics), step=_n_evaluations(state))
        control.should_save = True

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Keeps the trainer's checkpoint, and checks whether the trial must end.

        Raises:
            optuna.TrialPruned: If the trial must end.
        """
        saved = Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
        with self._trial.new_checkpoint(_n_evaluations(state)) as folder:
            if self._trial.is_main:
                shutil.copytree(saved, folder, dirs_exist_ok=True, copy_function=_link_or_copy)
        if self._trial.should_prune():
            raise optuna.TrialPruned

    def _values(self, metrics: Mapping[str, float]) -> float | dict[str, float]:
        if isinstance(self._metric, str):
            return _value(metrics, self._metric)
        return {name: _value(metrics, metric) for name, metric in self._metric.items()}


def training_arguments(trial: TrialContext) -> dict[str, Any]:
    """Returns the arguments of `TrainingArguments` that depend on the trial.

    These are `output_dir`, `use_cpu`, `bf16` or `fp16`, `seed`, `eval_strategy="epoch"`,
    `save_strategy="no"` (`TrialCallback` saves after each evaluation), `save_total_limit=1`,
    `report_to="none"` and `disable_tqdm=True`. To change one:
    `TrainingArguments(**{**training_arguments(trial), "eval_strategy": "steps"})`.

    Args:
        trial: The trial.
    """
    is_on_gpu = trial.device.type == "cuda"
    has_bf16 = is_on_gpu and _has_bf16()
    return {
        "output_dir": str(trial.checkpoint_dir / _OUTPUT),
        "use_cpu": not is_on_gpu,
        "bf16": has_bf16,
        "fp16": is_on_gpu and not has_bf16,
        "seed": trial.seed,
        "eval_strategy": "epoch",
        "save_strategy": "no",
        "save_total_limit": 1,
        "report_to": "none",
        "disable_tqdm": True,
    }


def resume_path(trial: TrialContext) -> str | None:
    """Returns the newest checkpoint for `train(resume_from_checkpoint=...)`, or None."""
    folder = trial.newest_checkpoint()
    return None if folder is None else str(folder)


def _n_evaluations(state: TrainerState) -> int:
    """The number of evaluations, which the trainer saves with its history."""
    return sum("eval_runtime" in entry for entry in state.log_history)


def _saved_names(folder: Path) -> set[str]:
    names: set[str] = set()
    for file in folder.glob("*.safetensors"):
        with safe_open(file, framework="pt") as tensors:
            names.update(tensors.keys())
    return names


def _value(metrics: Mapping[str, float], name: str) -> float:
    if name not in metrics:
        raise KeyError(
            f"The evaluation has no metric {name!r}. It has {', '.join(sorted(metrics))}. "
            "Trainer(compute_metrics=...) adds metrics; their names get the prefix 'eval_'."
        )
    return float(metrics[name])


def _has_bf16() -> bool:
    import torch

    return bool(torch.cuda.is_bf16_supported(False))


def _link_or_copy(source: str, target: str) -> None:
    # The trainer's own copy is removed when the next one is saved.
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
