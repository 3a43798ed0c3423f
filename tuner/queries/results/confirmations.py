"""The fresh runs of a study's leaders, as the database holds them.

They are trials of a study of their own, each with the number of the trial that it repeats in an
attribute.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from optuna.study import StudyDirection
from optuna.trial import TrialState

from tuner.config.sections.confirm import confirmation_of
from tuner.search.winner_confidence import Confirmed, judge_confirmed
from tuner.search_spaces import ParamValue
from tuner.store.optuna_tables.statements import (
    DIRECTIONS,
    FIXED_PARAMS_ATTR,
    STUDIES,
    SYSTEM_ATTRS,
    TRIALS,
    USER_ATTRS,
    ids_of,
    read_values,
)
from tuner.store.optuna_tables.writes import insert_trial, lock_study

#: User attribute of a run: the number of the trial that it repeats.
CONFIRMS_ATTR = "tuner:confirms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """A trial that is to be run again."""

    number: int
    #: Without constants.
    params: Mapping[str, ParamValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """Progress and results of confirmation runs."""

    n_runs: int
    n_ended: int
    #: The best mean first.
    leaders: tuple[Confirmed, ...]


def read_confirmation(connection: sa.Connection, study: str) -> Confirmation | None:
    """The confirmation runs of a study; None if it has none.

    Args:
        connection: With a consistent snapshot.
        study: Name of the study.
    """
    of_name = sa.select(STUDIES.c.study_id).where(STUDIES.c.study_name == confirmation_of(study))
    study_id = connection.execute(of_name).scalar()
    if study_id is None:
        return None
    repeats = _repeats(connection, study_id)
    states = sa.select(TRIALS.c.trial_id, TRIALS.c.state).where(TRIALS.c.study_id == study_id)
    of_trial = {row.trial_id: row.state for row in connection.execute(states)}
    completed = [each for each, state in of_trial.items() if state is TrialState.COMPLETE]
    found: dict[int, list[float]] = {}
    for trial_id, by_place in sorted(read_values(connection, study_id, completed).items()):
        if trial_id in repeats and 0 in by_place:
            found.setdefault(repeats[trial_id], []).append(by_place[0])
    direction = sa.select(DIRECTIONS.c.direction).where(DIRECTIONS.c.study_id == study_id)
    is_maximized = connection.execute(direction).scalar() is StudyDirection.MAXIMIZE
    return Confirmation(
        n_runs=len(of_trial),
        n_ended=sum(state.is_finished() for state in of_trial.values()),
        leaders=judge_confirmed(found, is_maximized=is_maximized),
    )


def insert_runs(
    connection: sa.Connection, study_id: int, leaders: Sequence[Leader], n_runs: int
) -> int:
    """Adds waiting runs until each leader has as many as it needs, counting those of others.

    Args:
        connection: In a transaction, before whose end no other process adds any.
        study_id: Id of the study of the runs.
        leaders: The best first.
        n_runs: Runs per leader.

    Returns:
        Number of runs of the study.
    """
    lock_study(connection, study_id)
    known = Counter(_repeats(connection, study_id).values())
    for n_had in range(n_runs):
        # Each once, then each for the second time: an early end leaves all with as many.
        for leader in leaders:
            if known[leader.number] <= n_had:
                _insert(connection, study_id, leader)
                known[leader.number] += 1
    count = sa.select(sa.func.count()).where(TRIALS.c.study_id == study_id)
    return int(connection.execute(count).scalar_one())


def _insert(connection: sa.Connection, study_id: int, leader: Leader) -> None:
    trial_id, _ = insert_trial(
        connection, study_id, TrialState.WAITING, started_at=None, is_locked=True
    )
    fixed = {"key": FIXED_PARAMS_ATTR, "value_json": json.dumps(dict(leader.params))}
    connection.execute(sa.insert(SYSTEM_ATTRS), {"trial_id": trial_id, **fixed})
    repeated = {"key": CONFIRMS_ATTR, "value_json": json.dumps(leader.number)}
    connection.execute(sa.insert(USER_ATTRS), {"trial_id": trial_id, **repeated})


def _repeats(connection: sa.Connection, study_id: int) -> dict[int, int]:
    """The number of the repeated trial, by id of the run."""
    query = sa.select(USER_ATTRS.c.trial_id, USER_ATTRS.c.value_json).where(
        USER_ATTRS.c.key == CONFIRMS_ATTR, USER_ATTRS.c.trial_id.in_(ids_of(study_id))
    )
    return {row.trial_id: json.loads(row.value_json) for row in connection.execute(query)}
