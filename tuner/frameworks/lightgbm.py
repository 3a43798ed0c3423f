"""LightGBM: reports, pruning and checkpoints.

booster = lgb.train(
    {"learning_rate": trial.params.lr, "metric": "auc"},
    training,
    num_boost_round=rounds_left(trial, 100),
    valid_sets=[validation],
    init_model=resumed(trial),
    callbacks=[TrialCallback(trial, "auc")],
)
"""

from __future__ import annotations

import lightgbm
import optuna
from lightgbm.callback import CallbackEnv

from tuner.trials.context import TrialContext

__all__ = ["TrialCallback", "resumed", "rounds_left"]

_FILE = "model.txt"


class TrialCallback:
    """Reports a metric of a validation set, saves the model and ends a pruned trial.

    The step of a report is the number of rounds so far, from 1.

    Args:
        trial: The trial.
        metric: Name of the metric, such as `auc`.
        valid_name: Name of the validation set.
        every: Number of rounds between two checkpoints, besides that of the first round. A resumed
            trial repeats the rounds since its last checkpoint.
    """

    def __init__(
        self, trial: TrialContext, metric: str, valid_name: str = "valid_0", *, every: int = 10
    ) -> None:
        self._trial = trial
        self._metric = metric
        self._valid_name = valid_name
        self._every = every

    def __call__(self, env: CallbackEnv) -> None:
        step = env.iteration + 1
        self._trial.report(self._value(env), step=step)
        if step == 1 or step % self._every == 0:
            with self._trial.new_checkpoint(step) as folder:
                env.model.save_model(folder / _FILE)
        if self._trial.should_prune():
            raise optuna.TrialPruned

    def _value(self, env: CallbackEnv) -> float:
        results = env.evaluation_result_list or []
        for valid_name, metric, value, *_ in results:
            if (valid_name, metric) == (self._valid_name, self._metric):
                return float(value)
        found = ", ".join(f"{name} {metric}" for name, metric, *_ in results) or "no metric"
        raise KeyError(
            f"LightGBM evaluates no {self._metric!r} of {self._valid_name!r}. It evaluates {found}."
        )


def resumed(trial: TrialContext) -> lightgbm.Booster | None:
    """Returns the model of the newest checkpoint for `train(init_model=...)`, or None."""
    folder = trial.newest_checkpoint()
    return None if folder is None else lightgbm.Booster(model_file=folder / _FILE)


def rounds_left(trial: TrialContext, num_boost_round: int) -> int:
    """Returns how many rounds are still to do.

    Args:
        trial: The trial.
        num_boost_round: Number of rounds of the whole training.
    """
    booster = resumed(trial)
    return num_boost_round - (0 if booster is None else booster.current_iteration())
