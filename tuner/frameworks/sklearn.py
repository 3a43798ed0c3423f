"""scikit-learn: checkpoints of an estimator that is trained with `partial_fit`.

model, done = load_estimator(trial) or (SGDClassifier(alpha=trial.params.alpha), 0)
for epoch in range(done + 1, 11):
    model.partial_fit(inputs, targets, classes=classes)
    trial.report(model.score(*validation), step=epoch)
    save_estimator(model, trial, step=epoch)
    if trial.should_prune():
        raise optuna.TrialPruned
"""

from __future__ import annotations

import pickle
from typing import Any

from tuner.checkpoints.layout import step_of
from tuner.trials.context import TrialContext

__all__ = ["load_estimator", "save_estimator"]

_FILE = "estimator.pickle"


def save_estimator(estimator: Any, trial: TrialContext, step: int) -> None:
    """Saves an estimator, or a pipeline, with pickle.

    Args:
        estimator: The estimator.
        trial: The trial.
        step: The step that it belongs to.

    Raises:
        OSError: If it cannot be written. Earlier checkpoints are intact.
    """
    with trial.new_checkpoint(step) as folder:
        (folder / _FILE).write_bytes(pickle.dumps(estimator))


def load_estimator(trial: TrialContext) -> tuple[Any, int] | None:
    """Loads the estimator of the newest checkpoint.

    A pickle can run code. Only the study's own processes should be able to write its folder.

    Returns:
        The estimator and its step, or None.
    """
    folder = trial.newest_checkpoint()
    if folder is None:
        return None
    return pickle.loads((folder / _FILE).read_bytes()), step_of(folder)
