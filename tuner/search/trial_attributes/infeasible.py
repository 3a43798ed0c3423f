"""Trials whose configuration cannot work, marked so that the sampler avoids them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import optuna
from optuna.trial import FrozenTrial, TrialState

from tuner.store.optuna_compat import trial_id_of

if TYPE_CHECKING:
    # It imports SQLAlchemy, which the process that suggests parameters does without.
    from tuner.store.optuna_tables.storage import BufferedStorage

OWN_PREFIX = "tuner:"
"""Prefix of the tuner's own constraints; a program's have other names."""


def is_of_the_tuner(constraint: str) -> bool:
    """Whether the tuner itself set this constraint, because a trial had no result."""
    return constraint.startswith(OWN_PREFIX)


def is_marked(trial: FrozenTrial) -> bool:
    """Whether the tuner marked a trial as infeasible."""
    return any(map(is_of_the_tuner, trial.constraints))


class InfeasibleTrials:
    """The ids of the trials that the tuner marked as infeasible.

    Args:
        storage: Holds the study.
        study_id: Its id in the storage.
    """

    def __init__(self, storage: BufferedStorage, study_id: int) -> None:
        self._ids: set[int] = set()
        pruned = storage.get_all_trials(study_id, deepcopy=False, states=(TrialState.PRUNED,))
        for trial in pruned:
            self.sync(trial)

    def __len__(self) -> int:
        return len(self._ids)

    def sync(self, trial: FrozenTrial) -> None:
        """Reads a trial from the storage, whichever dispatcher changed it."""
        if trial.system_attrs and is_marked(trial):
            self._ids.add(trial_id_of(trial))

    def mark(self, trial: optuna.Trial, why: str) -> None:
        """Lets a running trial break a constraint.

        Args:
            trial: The trial, which is about to end.
            why: In a word.
        """
        trial.set_constraint(f"{OWN_PREFIX}{why}", 1.0)
        self._ids.add(trial_id_of(trial))
