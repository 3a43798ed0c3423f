"""`tuner studies`: all studies of a database, with a fixed number of statements."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from optuna.study import StudyDirection
from optuna.trial import TrialState

from tuner.queries.dispatchers import StoredDispatcher, read_dispatchers
from tuner.store.optuna_tables.feasibility import (
    count_failed_as_pruned,
    infeasible_trials,
    without,
)
from tuner.store.optuna_tables.pauses import count_paused
from tuner.store.optuna_tables.statements import (
    DIRECTIONS,
    METRIC_NAMES_ATTR,
    OBJECTIVES_ATTR,
    STUDIES,
    STUDY_ATTRS,
    STUDY_SYSTEM_ATTRS,
    TRIALS,
    VALUES,
    aware,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """What a study minimizes or maximizes."""

    name: str
    direction: StudyDirection

    @property
    def is_maximized(self) -> bool:
        return self.direction is StudyDirection.MAXIMIZE

    def __str__(self) -> str:
        return f"{self.name} ({self.direction.name.lower()})"


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySummary:
    """A study at a glance."""

    id: int
    name: str
    objectives: tuple[Objective, ...]
    #: Every state, also those that no trial is in. Trials that ran out of memory or reported NaN
    #: have failed, although Optuna has them as pruned.
    trials: Mapping[TrialState, int]
    #: Waiting trials that are paused at a rung rather than waiting for a device.
    n_paused: int
    #: Best value of each objective by itself, over feasible completed trials.
    best: Mapping[str, float]
    #: Live dispatchers.
    dispatchers: tuple[StoredDispatcher, ...]
    started_at: datetime | None
    active_at: datetime | None
    #: Whether a dispatcher has ever worked on it.
    is_ours: bool = True

    @property
    def n_trials(self) -> int:
        return sum(self.trials.values())

    @property
    def n_waiting(self) -> int:
        """Trials that wait for a device."""
        return self.trials[TrialState.WAITING] - self.n_paused

    @property
    def n_begun(self) -> int:
        """Trials that have had a device and were not put back: what a budget counts."""
        return self.n_trials - self.n_waiting

    @property
    def n_finished(self) -> int:
        return sum(n for state, n in self.trials.items() if state.is_finished())


def read_studies(
    connection: sa.Connection, now: datetime, study_id: int | None = None
) -> list[StudySummary]:
    """All studies, the oldest first; or one."""
    objectives = read_objectives(connection)
    counts, instants = _read_trials(connection)
    best = _read_best(connection, objectives)
    paused = count_paused(connection)
    dispatchers = read_dispatchers(connection, now)
    query = sa.select(STUDIES.c.study_id, STUDIES.c.study_name).order_by(STUDIES.c.study_id)
    if study_id is not None:
        query = query.where(STUDIES.c.study_id == study_id)
    return [
        _summary(
            row.study_id,
            row.study_name,
            objectives=objectives.get(row.study_id, ()),
            counts=counts.get(row.study_id, {}),
            n_paused=paused[row.study_id],
            best=best.get(row.study_id, {}),
            starts=[each for each in dispatchers if each.study_id == row.study_id],
            instants=instants.get(row.study_id, []),
        )
        for row in connection.execute(query)
    ]


def read_objectives(connection: sa.Connection) -> dict[int, tuple[Objective, ...]]:
    """Objectives by study: with the tuner's names, Optuna's, or `value`, `value_1`."""
    names = _attribute(connection, STUDY_SYSTEM_ATTRS, METRIC_NAMES_ATTR)
    names |= _attribute(connection, STUDY_ATTRS, OBJECTIVES_ATTR)
    found: dict[int, list[Objective]] = {}
    query = sa.select(DIRECTIONS).order_by(DIRECTIONS.c.study_id, DIRECTIONS.c.objective)
    for row in connection.execute(query):
        given = names.get(row.study_id, [])
        default = f"value_{row.objective}" if row.objective else "value"
        name = given[row.objective] if row.objective < len(given) else default
        objective = Objective(name=name, direction=row.direction)
        found.setdefault(row.study_id, []).append(objective)
    return {study_id: tuple(each) for study_id, each in found.items()}


def _attribute(connection: sa.Connection, table: sa.Table, key: str) -> dict[int, list[str]]:
    query = sa.select(table.c.study_id, table.c.value_json).where(table.c.key == key)
    return {row.study_id: json.loads(row.value_json) for row in connection.execute(query)}


def _read_trials(
    connection: sa.Connection,
) -> tuple[dict[int, Counter[TrialState]], dict[int, list[datetime | None]]]:
    # Read first: a trial that is marked later is at least among those that are stored as pruned.
    failed = count_failed_as_pruned(connection)
    query = sa.select(
        TRIALS.c.study_id,
        TRIALS.c.state,
        sa.func.count().label("n"),
        sa.func.min(TRIALS.c.datetime_start).label("first"),
        sa.func.max(TRIALS.c.datetime_start).label("last"),
        sa.func.max(TRIALS.c.datetime_complete).label("ended"),
    ).group_by(TRIALS.c.study_id, TRIALS.c.state)
    counts: dict[int, Counter[TrialState]] = {}
    instants: dict[int, list[datetime | None]] = {}
    for row in connection.execute(query):
        counts.setdefault(row.study_id, Counter())[row.state] = row.n
        instants.setdefault(row.study_id, []).extend([row.first, row.last, row.ended])
    for study_id, of_study in counts.items():
        of_study[TrialState.PRUNED] -= failed[study_id]
        of_study[TrialState.FAIL] += failed[study_id]
    return counts, instants


def _read_best(
    connection: sa.Connection, objectives: Mapping[int, tuple[Objective, ...]]
) -> dict[int, dict[str, float]]:
    """Best values; infinite ones, stored as NULL, are excluded."""
    query = (
        sa.select(
            TRIALS.c.study_id,
            VALUES.c.objective,
            sa.func.min(VALUES.c.value).label("low"),
            sa.func.max(VALUES.c.value).label("high"),
        )
        .join(VALUES, VALUES.c.trial_id == TRIALS.c.trial_id)
        .where(TRIALS.c.state == TrialState.COMPLETE, VALUES.c.value.is_not(None))
        .group_by(TRIALS.c.study_id, VALUES.c.objective)
        .order_by(TRIALS.c.study_id, VALUES.c.objective)
    )
    infeasible = infeasible_trials(connection)
    if infeasible:
        query = query.where(without(TRIALS.c.trial_id, infeasible))
    best: dict[int, dict[str, float]] = {}
    for row in connection.execute(query):
        objective = objectives[row.study_id][row.objective]
        value = row.high if objective.is_maximized else row.low
        best.setdefault(row.study_id, {})[objective.name] = value
    return best


def _summary(
    study_id: int,
    name: str,
    *,
    objectives: tuple[Objective, ...],
    counts: Mapping[TrialState, int],
    n_paused: int,
    best: Mapping[str, float],
    starts: list[StoredDispatcher],
    instants: list[Any],
) -> StudySummary:
    of_trials = [at for each in instants if (at := aware(each))]
    begun = [*of_trials, *(each.started_at for each in starts)]
    signs = [*of_trials, *(each.beat_at for each in starts)]
    return StudySummary(
        id=study_id,
        name=name,
        objectives=objectives,
        trials={state: counts.get(state, 0) for state in TrialState},
        n_paused=n_paused,
        best=best,
        dispatchers=tuple(each for each in starts if each.is_alive),
        started_at=min(begun, default=None),
        active_at=max(signs, default=None),
        is_ours=bool(starts),
    )
