"""Running trials, and the attempts that hold devices for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeAlias

import sqlalchemy as sa
from optuna.trial import TrialState

from tuner.domain.attempt import AttemptState
from tuner.queries.dispatchers import StoredDispatcher, has_our_tables
from tuner.queries.studies import StudySummary
from tuner.queries.trials.attempts import StoredAttempt, read_attempts
from tuner.store.optuna_tables.statements import TRIALS, aware, read_curves
from tuner.store.schema.models import AttemptRow, ClaimRow, MetricRow

#: A step and the values by objective.
LastReport: TypeAlias = tuple[int | None, Mapping[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningTrial:
    """A running trial, according to the database."""

    trial: int
    #: None if another program than the tuner runs it.
    attempt: int | None
    #: None as above.
    state: AttemptState | None
    host: str | None
    devices: tuple[str, ...]
    pid: int | None
    since: datetime | None
    for_s: float | None
    #: Id of its last dispatcher; None if another program runs it.
    dispatcher_id: int | None
    #: Step of its last report.
    step: int | None
    values: Mapping[str, float]
    #: False if its dispatcher is dead: it will be retried.
    is_alive: bool
    #: Whether a dispatcher has prefetched it and no device is free yet.
    is_waiting: bool = False


def read_running(
    connection: sa.Connection,
    study: StudySummary,
    starts: Sequence[StoredDispatcher],
    now: datetime,
) -> list[RunningTrial]:
    """In the order of their numbers."""
    alive = {each.id for each in starts if each.is_alive}
    trials = _busy_trials(connection, study.id)
    attempts = read_attempts(connection, study.id, list(trials))
    curves = read_curves(connection, study.id, list(trials))
    metrics = _last_metrics(connection, study, list(trials))
    asked_for = _asked_for(connection, alive)
    found = [
        _running_trial(
            trials[trial_id],
            next((each for each in attempts.get(trial_id, ()) if each.is_open), None),
            _last(curves[trial_id], study) or metrics.get(trial_id) or (None, {}),
            alive=alive,
            now=now,
        )
        for trial_id in trials
    ]
    return [
        replace(each, is_waiting=each.attempt is None and trial_id in asked_for)
        for trial_id, each in zip(trials, found, strict=True)
    ]


def _asked_for(connection: sa.Connection, alive: set[int]) -> set[int]:
    """Trials that dispatchers have claimed, by id."""
    if not has_our_tables(connection):
        return set()
    claims = sa.select(ClaimRow.trial_id).where(ClaimRow.dispatcher_id.in_(alive))
    return set(connection.execute(claims).scalars())


def _busy_trials(connection: sa.Connection, study_id: int) -> dict[int, sa.Row[Any]]:
    """By id: those that Optuna takes for running, and those with an attempt that is not over."""
    is_busy = TRIALS.c.state == TrialState.RUNNING
    if has_our_tables(connection):
        is_open = sa.select(AttemptRow.trial_id).where(AttemptRow.state != AttemptState.FINISHED)
        is_busy = sa.or_(is_busy, TRIALS.c.trial_id.in_(is_open))
    query = (
        sa.select(TRIALS.c.trial_id, TRIALS.c.number, TRIALS.c.datetime_start)
        .where(TRIALS.c.study_id == study_id, is_busy)
        .order_by(TRIALS.c.number)
    )
    rows: sa.CursorResult[Any] = connection.execute(query)
    return {row.trial_id: row for row in rows}


def _last(curve: Mapping[int, float], study: StudySummary) -> LastReport | None:
    if not curve:
        return None
    step = max(curve)
    return step, {study.objectives[0].name: curve[step]}


def _last_metrics(
    connection: sa.Connection, study: StudySummary, trial_ids: Sequence[int]
) -> dict[int, LastReport]:
    """The last values of several objectives, for which Optuna has no curves."""
    if len(study.objectives) == 1 or not trial_ids or not has_our_tables(connection):
        return {}
    names = [each.name for each in study.objectives]
    query = (
        sa.select(AttemptRow.trial_id, MetricRow.step, MetricRow.name, MetricRow.value)
        .join(AttemptRow, AttemptRow.id == MetricRow.attempt_id)
        .where(
            AttemptRow.trial_id.in_(trial_ids),
            AttemptRow.state != AttemptState.FINISHED,
            MetricRow.name.in_(names),
            MetricRow.value.is_not(None),
        )
        .order_by(MetricRow.step)
    )
    found: dict[int, LastReport] = {}
    for row in connection.execute(query):
        step, values = found.get(row.trial_id, (None, {}))
        found[row.trial_id] = (
            row.step,
            {**(values if step == row.step else {}), row.name: row.value},
        )
    return found


def _running_trial(
    trial: sa.Row[Any],
    attempt: StoredAttempt | None,
    last: LastReport,
    *,
    alive: set[int],
    now: datetime,
) -> RunningTrial:
    since = aware(trial.datetime_start)
    if attempt is not None:
        since = attempt.started_at or attempt.leased_at
    return RunningTrial(
        trial=trial.number,
        attempt=attempt.number if attempt else None,
        state=attempt.state if attempt else None,
        host=attempt.host if attempt else None,
        devices=attempt.devices if attempt else (),
        pid=attempt.pid if attempt else None,
        dispatcher_id=attempt.dispatcher_id if attempt else None,
        since=since,
        for_s=max(0.0, (now - since).total_seconds()) if since else None,
        step=last[0],
        values=last[1],
        is_alive=attempt is None or attempt.dispatcher_id in alive,
    )
