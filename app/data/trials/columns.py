"""The trials of a study as columns, of which a refresh reads only what may have changed.

A finished trial never changes. So a second look reads the trials that are newer than the newest
one held, and those that were not finished. Curves are not read: ten thousand trials with a hundred
reports each would be a million rows, and how a study converges is in the final values.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import sqlalchemy as sa
from optuna.trial import TrialState

from app.data.columns import Columns, Flags, Floats, Numbers, joined
from app.data.outcome_words import COMPLETED, code_of
from tuner.attempt import Outcome
from tuner.queries.dispatchers import has_our_tables
from tuner.store.optuna_tables.feasibility import infeasible_trials
from tuner.store.optuna_tables.pauses import read_paused
from tuner.store.optuna_tables.statements import MAX_LISTED, TRIALS, ids_of, read_values
from tuner.store.schema.models import AttemptRow


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrialColumns(Columns):
    """Trials in the order of their numbers."""

    ids: Numbers
    numbers: Numbers
    #: Codes of `app.data.outcome_words`.
    words: Numbers
    #: Seconds since the epoch; NaN where it has not begun or not ended.
    started_at_s: Floats
    ended_at_s: Floats
    #: A row for each trial, a column for each objective; NaN where there is none.
    values: Floats
    is_infeasible: Flags

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def is_finished(self) -> Flags:
        return ~np.isnan(self.ended_at_s)

    @property
    def is_candidate(self) -> Flags:
        """Which may be called the best: completed, every value finite, within the constraints."""
        is_whole = np.isfinite(self.values).all(axis=1)
        candidates: Flags = (self.words == COMPLETED) & is_whole & ~self.is_infeasible
        return candidates


def no_trials(n_objectives: int) -> TrialColumns:
    ids = np.empty(0, dtype=np.int64)
    floats = np.empty(0)
    return TrialColumns(
        ids=ids,
        numbers=ids,
        words=ids,
        started_at_s=floats,
        ended_at_s=floats,
        values=np.empty((0, n_objectives)),
        is_infeasible=np.empty(0, dtype=np.bool_),
    )


class GrowingTrials:
    """The trials of one study, kept between two looks. Several threads may use it."""

    def __init__(self, study_id: int, n_objectives: int) -> None:
        self._study_id = study_id
        self._n_objectives = n_objectives
        self._held = no_trials(n_objectives)
        self._lock = threading.Lock()

    def refresh(self, connection: sa.Connection) -> TrialColumns:
        """All trials as they are now."""
        with self._lock:
            self._held = self._merged(connection, self._held)
            query = sa.select(sa.func.count(), sa.func.min(TRIALS.c.trial_id))
            n, first = connection.execute(query.where(TRIALS.c.study_id == self._study_id)).one()
            is_same = n == len(self._held) and (n == 0 or first == self._held.ids.min())
            if not is_same:
                # The study was deleted and made again, or a server's transaction that had taken
                # a lower number was later than the one with the newest that was seen.
                self._held = self._merged(connection, no_trials(self._n_objectives))
            return self._held

    def _merged(self, connection: sa.Connection, held: TrialColumns) -> TrialColumns:
        open_ids = held.ids[~held.is_finished]
        rows = self._changed(connection, held, open_ids)
        kept = held.where(held.is_finished)
        ids = [row.trial_id for row in rows]
        if np.isin(ids, kept.ids).any() or not set(open_ids.tolist()).issubset(ids):
            kept, rows = held.where(np.zeros(len(held), bool)), self._rows(connection, None)
            ids = [row.trial_id for row in rows]
        if not rows:
            return held
        new = self._columns(connection, rows, None if len(ids) > MAX_LISTED else ids)
        both = joined([kept, new])
        return both.where(np.argsort(both.numbers, kind="stable"))

    def _changed(
        self, connection: sa.Connection, held: TrialColumns, open_ids: Numbers
    ) -> Sequence[sa.Row[Any]]:
        if not len(held) or len(open_ids) > MAX_LISTED:
            return self._rows(connection, None)
        is_new = TRIALS.c.trial_id > int(held.ids.max())
        return self._rows(connection, sa.or_(is_new, TRIALS.c.trial_id.in_(open_ids.tolist())))

    def _rows(
        self, connection: sa.Connection, condition: sa.ColumnElement[bool] | None
    ) -> Sequence[sa.Row[Any]]:
        query: sa.Select[Any] = sa.select(
            TRIALS.c.trial_id,
            TRIALS.c.number,
            TRIALS.c.state,
            TRIALS.c.datetime_start,
            TRIALS.c.datetime_complete,
        ).where(TRIALS.c.study_id == self._study_id)
        if condition is not None:
            query = query.where(condition)
        return connection.execute(query).all()

    def _columns(
        self, connection: sa.Connection, rows: Sequence[sa.Row[Any]], ids: list[int] | None
    ) -> TrialColumns:
        place = {row.trial_id: at for at, row in enumerate(rows)}
        values = np.full((len(rows), self._n_objectives), np.nan)
        for trial_id, of_trial in read_values(connection, self._study_id, ids).items():
            for objective, value in of_trial.items():
                if trial_id in place and objective < self._n_objectives:
                    values[place[trial_id], objective] = value
        infeasible = infeasible_trials(connection, self._study_id, ids)
        outcomes = self._outcomes(connection, rows)
        paused = read_paused(connection, self._study_id)
        words = [
            code_of(row.state, outcomes.get(row.trial_id), is_paused=row.trial_id in paused)
            for row in rows
        ]
        return TrialColumns(
            ids=np.array([row.trial_id for row in rows], dtype=np.int64),
            numbers=np.array([row.number for row in rows], dtype=np.int64),
            words=np.array(words, dtype=np.int64),
            started_at_s=np.array([_started(row) for row in rows]),
            ended_at_s=np.array([_ended(row) for row in rows]),
            values=values,
            is_infeasible=np.array([row.trial_id in infeasible for row in rows], dtype=np.bool_),
        )

    def _outcomes(
        self, connection: sa.Connection, rows: Sequence[sa.Row[Any]]
    ) -> dict[int, Outcome | None]:
        """Of the last attempts of those that have failed."""
        failed = [row.trial_id for row in rows if row.state is TrialState.FAIL]
        if not failed or not has_our_tables(connection):
            return {}
        is_one: sa.ColumnElement[bool] = AttemptRow.trial_id.in_(failed)
        if len(failed) > MAX_LISTED:
            is_one = AttemptRow.trial_id.in_(
                ids_of(self._study_id).where(TRIALS.c.state == TrialState.FAIL)
            )
        query = sa.select(AttemptRow.trial_id, AttemptRow.outcome).where(is_one)
        rows_of_attempts = connection.execute(query.order_by(AttemptRow.number))
        return {row.trial_id: row.outcome for row in rows_of_attempts}


def seconds(at: datetime | None) -> float:
    """Since the epoch, of an instant of the database; NaN for none."""
    return at.replace(tzinfo=UTC).timestamp() if at else np.nan


def _started(row: sa.Row[Any]) -> float:
    return np.nan if row.state is TrialState.WAITING else seconds(row.datetime_start)


def _ended(row: sa.Row[Any]) -> float:
    """Some programs leave the instant out; the trial has ended all the same."""
    if not row.state.is_finished():
        return np.nan
    return seconds(row.datetime_complete or row.datetime_start or datetime(1970, 1, 1))
