"""The trials of a study as columns; a refresh reads only what may have changed.

A finished trial never changes. So a refresh reads trials newer than the newest one known, and those
that were not finished. Curves are not read: ten thousand trials with a hundred reports each would
be a million rows, and convergence needs only the final values.
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

from tuner.app.data.columns import Columns, Flags, Floats, Numbers, joined
from tuner.app.data.outcome_words import COMPLETED, PAUSED, PRUNED, WITHOUT_RESULT, code_of
from tuner.queries.trials.attempt_times import AttemptTimes, read_attempt_times
from tuner.queries.trials.last_reports import read_last_reports
from tuner.queries.trials.listing import trials_ahead
from tuner.store.optuna_tables.feasibility import infeasible_trials
from tuner.store.optuna_tables.pauses import read_paused
from tuner.store.optuna_tables.statements import MAX_LISTED, TRIALS, read_values


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrialColumns(Columns):
    """Trials in the order of their numbers."""

    ids: Numbers
    numbers: Numbers
    #: Codes of `tuner.app.data.outcome_words`.
    words: Numbers
    #: Seconds since the epoch; NaN if it has not started or ended. Of the first and the last
    #: attempt, if there are attempts.
    started_at_s: Floats
    ended_at_s: Floats
    #: The end of the last attempt that has ended, also of trials that have not; NaN without one.
    left_at_s: Floats
    #: Seconds in attempts that have ended, and since when another one runs; NaN without.
    attempts_s: Floats
    open_since_s: Floats
    #: Last heartbeat of a dispatcher that died during the last attempt; NaN if it is alive.
    abandoned_at_s: Floats
    #: The last report of trials that have not ended, as `values`; NaN without one.
    last_steps: Floats
    last_values: Floats
    #: A row for each trial, a column for each objective; NaN for missing ones.
    values: Floats
    is_infeasible: Flags

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def is_finished(self) -> Flags:
        return ~np.isnan(self.ended_at_s)

    @property
    def is_paused(self) -> Flags:
        paused: Flags = self.words == PAUSED
        return paused

    @property
    def is_placed(self) -> Flags:
        """Which have an end, or a last report at which they were paused."""
        placed: Flags = self.is_finished | (self.is_paused & ~np.isnan(self.left_at_s))
        return placed

    @property
    def placed_at_s(self) -> Floats:
        """When a trial ended or was paused, in seconds since the epoch; else NaN."""
        paused_at_s = np.where(self.is_paused, self.left_at_s, np.nan)
        return np.where(self.is_finished, self.ended_at_s, paused_at_s)

    @property
    def shown_values(self) -> Floats:
        """`values`; of a trial that is paused the last report."""
        return np.where(self.is_paused[:, None], self.last_values, self.values)

    def is_sample(self, *, with_pruned: bool) -> Flags:
        """Trials with information about parameters: candidates.

        Args:
            with_pruned: Include pruned and paused trials, at their last value.
        """
        if not with_pruned:
            return self.is_candidate
        is_partial = (self.words == PRUNED) | self.is_paused
        is_whole = np.isfinite(self.shown_values).all(axis=1) & ~self.is_infeasible
        sample: Flags = self.is_candidate | (is_partial & is_whole)
        return sample

    def durations_s(self, now_s: float) -> Floats:
        """Seconds in attempts, or from start to end if the tuner has not run it.

        Args:
            now_s: The current time, in seconds since the epoch: the end of running trials.
        """
        is_open = ~self.is_finished & ~np.isnan(self.open_since_s)
        until_s = np.fmin(now_s, self.abandoned_at_s)
        running_s = np.where(is_open, np.maximum(0.0, until_s - self.open_since_s), 0.0)
        ends = np.where(self.is_finished, self.ended_at_s, now_s)
        whole_s = np.maximum(0.0, ends - self.started_at_s)
        has_attempts = ~np.isnan(self.attempts_s)
        return np.where(has_attempts, np.nan_to_num(self.attempts_s) + running_s, whole_s)

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
        left_at_s=floats,
        attempts_s=floats,
        open_since_s=floats,
        abandoned_at_s=floats,
        last_steps=floats,
        last_values=np.empty((0, n_objectives)),
        values=np.empty((0, n_objectives)),
        is_infeasible=np.empty(0, dtype=np.bool_),
    )


class GrowingTrials:
    """The trials of one study, kept between two looks. Several threads may use it."""

    def __init__(self, study_id: int, objectives: Sequence[str]) -> None:
        self._study_id = study_id
        self._objectives = objectives
        self._n_objectives = len(objectives)
        self._held = no_trials(len(objectives))
        self._lock = threading.Lock()
        #: Whether a refresh reads only what has changed.
        self.is_read = False

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
            self.is_read = True
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
        times = read_attempt_times(connection, self._study_id, ids, now=datetime.now(UTC))
        paused = read_paused(connection, self._study_id)
        ahead = trials_ahead(connection, self._study_id, rows, times)
        words = [
            _word(
                row,
                times.get(row.trial_id),
                is_paused=row.trial_id in paused,
                is_ahead=row.trial_id in ahead,
            )
            for row in rows
        ]
        # Of a trial that failed Optuna keeps the last report, which is no result.
        values[np.isin(words, WITHOUT_RESULT)] = np.nan
        of_rows = [times.get(row.trial_id) for row in rows]
        last_steps, last_values = self._last_reports(connection, rows)
        return TrialColumns(
            ids=np.array([row.trial_id for row in rows], dtype=np.int64),
            numbers=np.array([row.number for row in rows], dtype=np.int64),
            words=np.array(words, dtype=np.int64),
            started_at_s=np.array(
                [
                    np.nan if row.trial_id in ahead else _started(row, each)
                    for row, each in zip(rows, of_rows, strict=True)
                ]
            ),
            ended_at_s=np.array(list(map(_ended, rows, of_rows))),
            left_at_s=np.array([_of(each.left_at) if each else np.nan for each in of_rows]),
            attempts_s=np.array([each.ended_s if each else np.nan for each in of_rows]),
            open_since_s=np.array([_of(each.open_since) if each else np.nan for each in of_rows]),
            abandoned_at_s=np.array(
                [_of(each.abandoned_at) if each else np.nan for each in of_rows]
            ),
            last_steps=last_steps,
            last_values=last_values,
            values=values,
            is_infeasible=np.array([row.trial_id in infeasible for row in rows], dtype=np.bool_),
        )

    def _last_reports(
        self, connection: sa.Connection, rows: Sequence[sa.Row[Any]]
    ) -> tuple[Floats, Floats]:
        """Steps and values; NaN for trials that have ended."""
        steps = np.full(len(rows), np.nan)
        values = np.full((len(rows), self._n_objectives), np.nan)
        open_ids = [row.trial_id for row in rows if not row.state.is_finished()]
        last = read_last_reports(connection, self._study_id, self._objectives, open_ids)
        for at, row in enumerate(rows):
            if row.trial_id in last:
                steps[at], by_name = last[row.trial_id]
                values[at] = [by_name.get(name, np.nan) for name in self._objectives]
        return steps, values


def seconds(at: datetime | None) -> float:
    """Seconds since the epoch for a time in the database; NaN for none."""
    return at.replace(tzinfo=UTC).timestamp() if at else np.nan


def seconds_of(times: Sequence[datetime | str | None]) -> Floats:
    """`seconds` of many times, or of their texts."""
    microseconds = np.array(times, dtype="datetime64[us]")
    unknown = np.isnat(microseconds)
    return np.where(unknown, np.nan, microseconds.astype(np.int64) / 1e6)


def _of(at: datetime | None) -> float:
    return at.timestamp() if at else np.nan


def _word(row: sa.Row[Any], times: AttemptTimes | None, *, is_paused: bool, is_ahead: bool) -> int:
    outcome, cause = (times.outcome, times.cause) if times else (None, None)
    is_abandoned = times is not None and times.abandoned_at is not None
    return code_of(
        row.state,
        outcome,
        cause,
        is_paused=is_paused,
        is_abandoned=is_abandoned,
        is_ahead=is_ahead,
    )


def _started(row: sa.Row[Any], times: AttemptTimes | None) -> float:
    if times is not None:
        return times.begun_at.timestamp()
    return np.nan if row.state is TrialState.WAITING else seconds(row.datetime_start)


def _ended(row: sa.Row[Any], times: AttemptTimes | None) -> float:
    """Some programs leave the instant out; the trial has ended all the same."""
    if not row.state.is_finished():
        return np.nan
    if times is not None and times.left_at is not None:
        return times.left_at.timestamp()
    return seconds(row.datetime_complete or row.datetime_start or datetime(1970, 1, 1))
