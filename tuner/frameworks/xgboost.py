"""XGBoost: reports, pruning, checkpoints and devices.

booster = xgb.train(
    {"eta": trial.params.eta, **device_parameters(trial)},
    training,
    num_boost_round=rounds_left(trial, 100),
    evals=[(validation, "validation")],
    xgb_model=resumed(trial),
    callbacks=[TrialCallback(trial, "validation-auc")],
)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import optuna
import xgboost

from tuner.trials.context import TrialContext

__all__ = ["TrialCallback", "device_parameters", "resumed", "rounds_left"]

_FILE = "model.ubj"
_Results: TypeAlias = Mapping[str, Mapping[str, Sequence[float]]]


class TrialCallback(xgboost.callback.TrainingCallback):
    """Reports a metric of each round, saves the model and ends a pruned trial.

    The step of a report is the number of rounds of the model, from 1.

    Args:
        trial: The trial.
        metric: Name of a data set and a metric, such as `validation-auc`.
        every: Number of rounds between two checkpoints, besides that of the first round. A resumed
            trial repeats the rounds since its last checkpoint.
    """

    def __init__(self, trial: TrialContext, metric: str, *, every: int = 10) -> None:
        super().__init__()
        self._trial = trial
        self._metric = metric
        self._every = every

    def after_iteration(self, model: xgboost.Booster, epoch: int, evals_log: _Results) -> bool:
        """Reports, saves, and checks whether the trial must end. Returns False: training continues.

        Raises:
            KeyError: If XGBoost does not evaluate the metric.
            optuna.TrialPruned: If the trial must end.
        """
        # XGBoost counts epochs from 0 again when it continues with a model.
        step = model.num_boosted_rounds()
        self._trial.report(self._value(evals_log), step=step)
        if step == 1 or step % self._every == 0:
            with self._trial.new_checkpoint(step) as folder:
                model.save_model(folder / _FILE)
        if self._trial.should_prune():
            raise optuna.TrialPruned
        return False

    def _value(self, evals_log: _Results) -> float:
        found = {
            f"{data}-{metric}": values[-1]
            for data, metrics in evals_log.items()
            for metric, values in metrics.items()
        }
        if self._metric not in found:
            raise KeyError(
                f"XGBoost does not evaluate {self._metric!r}. It evaluates "
                f"{', '.join(found) or 'no metric'}. Name the data set in xgb.train(evals=...)."
            )
        return float(found[self._metric])


def device_parameters(trial: TrialContext) -> dict[str, str]:
    """Returns the parameters of XGBoost that depend on the trial: `device` and `seed`."""
    return {"device": str(trial.device), "seed": str(trial.seed)}


def resumed(trial: TrialContext) -> xgboost.Booster | None:
    """Returns the model of the newest checkpoint for `train(xgb_model=...)`, or None."""
    folder = trial.newest_checkpoint()
    return None if folder is None else xgboost.Booster(model_file=folder / _FILE)


def rounds_left(trial: TrialContext, num_boost_round: int) -> int:
    """Returns how many rounds are still to do.

    Args:
        trial: The trial.
        num_boost_round: Number of rounds of the whole training.
    """
    booster = resumed(trial)
    return num_boost_round - (0 if booster is None else booster.num_boosted_rounds())
