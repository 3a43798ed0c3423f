"""Paused trials, which wait for a promotion at a rung or a turn in a population, not for a device.

Optuna has no such state. A paused trial is WAITING and has an attribute with the step where it
paused; null once it was resumed. Only this module decides which trials are paused.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import sqlalchemy as sa
from optuna.trial import FrozenTrial, TrialState

from tuner.store.optuna_tables.statements import SYSTEM_ATTRS, TRIALS

if TYPE_CHECKING:
    from optuna.storages import BaseStorage

PAUSED_KEY = "tuner:paused"

#: Ids, of trials that wait.
PAUSED_IDS = sa.select(SYSTEM_ATTRS.c.trial_id).where(
    SYSTEM_ATTRS.c.key == PAUSED_KEY, SYSTEM_ATTRS.c.value_json != "null"
)
_IS_PAUSED = sa.and_(TRIALS.c.state == TrialState.WAITING, TRIALS.c.trial_id.in_(PAUSED_IDS))


def is_paused(trial: FrozenTrial) -> bool:
    """Whether a trial waits for its turn, and not for a device."""
    return trial.state is TrialState.WAITING and trial.system_attrs.get(PAUSED_KEY) is not None


def note_pause(storage: BaseStorage, trial_id: int, step: int) -> None:
    """Stores that a running trial is paused.

    Args:
        storage: The storage of its study.
        trial_id: Its id.
        step: The step where it paused.
    """
    storage.set_trial_system_attr(trial_id, PAUSED_KEY, step)
    storage.set_trial_state_values(trial_id, TrialState.WAITING)


def note_resume(storage: BaseStorage, trial_id: int) -> None:
    """Stores that a trial, which is running again, is not paused any more."""
    storage.set_trial_system_attr(trial_id, PAUSED_KEY, None)


def read_paused(connection: sa.Connection, study_id: int) -> frozenset[int]:
    """Ids of the paused trials of one study."""
    query = sa.select(TRIALS.c.trial_id).where(TRIALS.c.study_id == study_id, _IS_PAUSED)
    return frozenset(connection.execute(query).scalars())


def count_paused(connection: sa.Connection) -> Counter[int]:
    """Paused trials by study id."""
    query = sa.select(TRIALS.c.study_id, sa.func.count().label("n")).where(_IS_PAUSED)
    rows = connection.execute(query.group_by(TRIALS.c.study_id))
    return Counter({row.study_id: row.n for row in rows})
