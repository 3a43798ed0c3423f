"""`tuner schedule`: the parameters of a trial through all its copies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime

import sqlalchemy as sa

from tuner.errors import ConfigError, StoreError
from tuner.queries.locate import StoredStudy
from tuner.queries.results.schedule import Phase, Schedule
from tuner.queries.studies import read_objectives
from tuner.queries.trials.listing import Choice, StoredTrial, read_trials
from tuner.queries.trials.params import read_whole_params
from tuner.store.optuna_tables.statements import SYSTEM_ATTRS, TRIALS
from tuner.store.records.population_rows import (
    COPY_KEY,
    MEMBER_KEY,
    REPLACED_KEY,
    Origin,
    Replacement,
)


def read_schedule(
    connection: sa.Connection, study: StoredStudy, number: int | None, now: datetime
) -> Schedule:
    """Reads the schedule of a trial.

    Args:
        connection: Connection to the study's database.
        study: The study.
        number: Number of the trial; None for the best.
        now: The current time.

    Raises:
        ConfigError: If there is no such trial, or its origin is unknown.
        StoreError: If no trial has completed, and none is named.
    """
    trial = _trial(connection, study, number, now)
    phases = list(_phases(connection, study, trial.number))[::-1]
    return Schedule(
        study=study.name,
        trial=trial.number,
        phases=phases,
        last_step=max(trial.reports or (), default=None),
        values=trial.values,
    )


def read_origins(connection: sa.Connection, study_id: int) -> dict[int, Origin]:
    """Origins by number of a trial that replaced another, usually as a copy."""
    query = (
        sa.select(TRIALS.c.number, SYSTEM_ATTRS.c.value_json)
        .join(SYSTEM_ATTRS, SYSTEM_ATTRS.c.trial_id == TRIALS.c.trial_id)
        .where(TRIALS.c.study_id == study_id, SYSTEM_ATTRS.c.key == COPY_KEY)
    )
    return {number: Origin(**json.loads(stored)) for number, stored in connection.execute(query)}


def read_why_replaced(connection: sa.Connection, trial_id: int) -> str:
    """Why a trial was replaced, as text; empty if it was not, or its attempts say why."""
    query = sa.select(SYSTEM_ATTRS.c.value_json).where(
        SYSTEM_ATTRS.c.trial_id == trial_id, SYSTEM_ATTRS.c.key == REPLACED_KEY
    )
    stored = connection.execute(query).scalar()
    return "" if stored is None else Replacement(**json.loads(stored)).why


def read_members(connection: sa.Connection, study_id: int) -> set[int]:
    """Numbers of the trials of a population, in any state."""
    query = (
        sa.select(TRIALS.c.number)
        .join(SYSTEM_ATTRS, SYSTEM_ATTRS.c.trial_id == TRIALS.c.trial_id)
        .where(TRIALS.c.study_id == study_id, SYSTEM_ATTRS.c.key.in_((MEMBER_KEY, COPY_KEY)))
    )
    return set(connection.execute(query).scalars())


def _trial(
    connection: sa.Connection, study: StoredStudy, number: int | None, now: datetime
) -> StoredTrial:
    objectives = read_objectives(connection)[study.id]
    choice = Choice(top=1) if number is None else Choice(numbers=frozenset({number}))
    found = read_trials(connection, study.id, objectives, choice, now=now, with_reports=True)
    if found:
        return found[0]
    if number is None:
        raise StoreError(f"No trial of study {study.name!r} has completed yet. Name one: --trial.")
    raise ConfigError(f"There is no trial {number} in study {study.name!r}.")


def _phases(connection: sa.Connection, study: StoredStudy, number: int) -> Iterator[Phase]:
    """The last one first."""
    origins = read_origins(connection, study.id)
    query = sa.select(TRIALS.c.number, TRIALS.c.trial_id).where(TRIALS.c.study_id == study.id)
    ids = {row.number: row.trial_id for row in connection.execute(query)}
    line = [number]
    while (
        (origin := origins.get(line[-1])) is not None and origin.step and origin.parent is not None
    ):
        if not origin.is_sure:
            raise ConfigError(
                f"Trial {line[-1]} of study {study.name!r} was to continue from trial "
                f"{origin.parent} at step {origin.step}, and its program counted its steps from "
                "the beginning: its earlier parameters are unknown. Continue from "
                "trial.load_checkpoint() in the program."
            )
        line.append(origin.parent)
    params = read_whole_params(connection, study.id, [ids[each] for each in line])
    for each in line:
        begun_at = origins[each].step if each in origins else 0
        yield Phase(after_step=begun_at, trial=each, params=params[ids[each]])
