"""Keras 3: checkpoints. Optuna's own `KerasPruningCallback` reports and prunes.

model = resumed(trial) or build_model(trial)
model.fit(
    inputs,
    targets,
    epochs=10,
    initial_epoch=first_epoch(trial),
    callbacks=[SaveCallback(trial), KerasPruningCallback(trial, "val_accuracy")],
)
"""

from __future__ import annotations

from typing import Any

import keras

from tuner.checkpoints.layout import step_of
from tuner.trials.context import TrialContext

__all__ = ["SaveCallback", "first_epoch", "resumed"]

_FILE = "model.keras"


class SaveCallback(keras.callbacks.Callback):
    """Saves the model and its optimizer after each epoch.

    Put it before the callback that prunes, so that a paused trial has saved its last epoch.

    Args:
        trial: The trial.
    """

    def __init__(self, trial: TrialContext) -> None:
        super().__init__()
        self._trial = trial

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Saves."""
        with self._trial.new_checkpoint(epoch) as folder:
            self.model.save(folder / _FILE)


def resumed(trial: TrialContext) -> Any | None:
    """Returns the compiled model of the newest checkpoint, or None."""
    folder = trial.newest_checkpoint()
    return None if folder is None else keras.models.load_model(folder / _FILE)


def first_epoch(trial: TrialContext) -> int:
    """Returns the epoch to start with, for `fit(initial_epoch=...)`; from 0, as in Keras."""
    folder = trial.newest_checkpoint()
    return 0 if folder is None else step_of(folder) + 1
