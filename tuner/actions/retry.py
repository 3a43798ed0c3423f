"""`tuner retry`: the configuration of a trial that has ended, to be tried once more."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa
from optuna.trial import TrialState

from tuner.errors import ConfigError
from tuner.queries.dispatchers import has_our_tables
from tuner.queries.locate import Place, choose_study, writing
from tuner.queries.trials.params import read_params
from tuner.store.optuna_tables.statements import (
    ASKED_BY_ATTR,
    FIXED_PARAMS_ATTR,
    SYSTEM_ATTRS,
    TRIALS,
    USER_ATTRS,
)
from tuner.store.optuna_tables.writes import insert_trial
from tuner.store.records.commands import NEW_TRIAL, Command, Order, insert_command

#: User attribute of the new trial: the number of the repeated one.
RETRY_OF_ATTR = "tuner:retry_of"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried:
    """Result of `retry`."""

    study: str
    trial_number: int
    new_number: int


def retry(place: Place, number: int, now: datetime, *, asked_by: str) -> Retried:
    """Enqueues a new trial with the parameters of an earlier one, before all others.

    An ended trial of Optuna never changes, so the new one has its own number, and attributes with
    the earlier one and the user. The study's dispatcher records an event.

    Args:
        place: The study.
        number: Number of the earlier trial.
        now: The current time.
        asked_by: `user@host`.

    Raises:
        TunerError: If there is no such trial, or it has not ended.
    """
    with writing(place) as (_, connection):
        stored = choose_study(connection, place)
        query = sa.select(TRIALS.c.trial_id, TRIALS.c.state).where(
            TRIALS.c.study_id == stored.id, TRIALS.c.number == number
        )
        found = connection.execute(query).first()
        if found is None:
            raise ConfigError(f"There is no trial {number} in study {stored.name!r}.")
        if not found.state.is_finished():
            doing = "runs now" if found.state is TrialState.RUNNING else "waits to be run"
            raise ConfigError(f"Trial {number} {doing}: there is nothing to repeat.")
        params = read_params(connection, stored.id, [found.trial_id]).get(found.trial_id, {})
        trial_id, new = insert_trial(connection, stored.id, TrialState.WAITING, started_at=None)
        _note(connection, SYSTEM_ATTRS, trial_id, FIXED_PARAMS_ATTR, params)
        _note(connection, USER_ATTRS, trial_id, RETRY_OF_ATTR, number)
        _note(connection, USER_ATTRS, trial_id, ASKED_BY_ATTR, asked_by)
        if has_our_tables(connection):
            command = Command(
                order=Order.RETRY,
                trial_number=number,
                arguments={NEW_TRIAL: new},
                asked_by=asked_by,
            )
            insert_command(connection, stored.id, command, at=now)
    return Retried(study=stored.name, trial_number=number, new_number=new)


def _note(
    connection: sa.Connection, table: sa.Table, trial_id: int, key: str, value: object
) -> None:
    row = {"trial_id": trial_id, "key": key, "value_json": json.dumps(value)}
    connection.execute(sa.insert(table), row)
