"""Adds trials to a study and claims waiting ones, in the caller's transaction.

These are the two writes of a storage that cannot wait: both are contested by other dispatchers.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import sqlalchemy as sa
from optuna.trial import FrozenTrial, TrialState

from tuner.store.optuna_compat import trial_id_of
from tuner.store.optuna_tables import writes
from tuner.store.optuna_tables.reads import TrialHead, read_new, read_trials
from tuner.store.records.dispatchers.ownership import Ownership


class Added(NamedTuple):
    """A trial that was added."""

    trial_id: int
    number: int
    #: Trials that others added before it, and that were not known yet.
    before: Sequence[FrozenTrial]


def new_trial() -> FrozenTrial:
    """A trial that starts now and has neither a number nor an id yet."""
    return FrozenTrial(
        number=-1,
        trial_id=-1,
        state=TrialState.RUNNING,
        value=None,
        values=None,
        datetime_start=datetime.now(),
        datetime_complete=None,
        params={},
        distributions={},
        user_attrs={},
        system_attrs={},
        intermediate_values={},
    )


def added_after(newest: FrozenTrial | None) -> Added:
    """The place of the next trial of a study that is kept in memory only."""
    number = newest.number + 1 if newest else 0
    return Added(trial_id_of(newest) + 1 if newest else 1, number, ())


def insert_trial(
    connection: sa.Connection,
    study_id: int,
    trial: FrozenTrial,
    *,
    newest: FrozenTrial | None,
    ownership: Ownership | None,
) -> Added:
    """Adds a trial's own row.

    Args:
        connection: In a transaction.
        study_id: Id of the study.
        trial: The trial to add.
        newest: The known trial with the highest number.
        ownership: The dispatcher's right to write, if a dispatcher adds the trial.

    Raises:
        NoTrialLeft: If the study's dispatchers may start no further trial.
    """
    if ownership is not None:
        ownership.begin(connection)
    trial_id, number = writes.insert_trial(
        connection,
        study_id,
        trial.state,
        started_at=trial.datetime_start,
        completed_at=trial.datetime_complete,
        newest=newest,
        is_locked=ownership is not None,
    )
    if ownership is not None:
        ownership.check_room(number)
        ownership.claim_new(connection, trial_id)
    newest_id, next_number = (trial_id_of(newest), newest.number + 1) if newest else (0, 0)
    if number == next_number:
        return Added(trial_id, number, ())
    before = read_new(connection, study_id, after_id=newest_id)
    return Added(trial_id, number, [each for each in before if each.number < number])


def claim_waiting(
    connection: sa.Connection, study_id: int, trial: FrozenTrial, *, ownership: Ownership | None
) -> FrozenTrial | None:
    """Claims a waiting trial, unless another dispatcher has claimed it.

    Args:
        connection: In a transaction.
        study_id: Id of the study.
        trial: As last read.
        ownership: The dispatcher's right to write, if a dispatcher claims the trial.

    Returns:
        The trial as stored, which may have run elsewhere since the last read; None if it cannot be
        claimed.
    """
    trial_id, started_at = trial_id_of(trial), datetime.now()
    if ownership is not None:
        ownership.begin(connection)
        if not ownership.may_begin_waiting(connection, trial_id):
            return None
    if not writes.claim_waiting_trial(connection, trial_id, started_at):
        return None
    if ownership is not None:
        ownership.claim(connection, trial_id)
    head = TrialHead(trial_id, trial.number, TrialState.RUNNING, started_at, None)
    return read_trials(connection, study_id, [head])[0]
