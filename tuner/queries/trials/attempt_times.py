"""Run times of trials, from their attempts.

Optuna keeps one start and one end per trial. A trial that is paused and resumed starts several
times, and a paused trial that is pruned when the study ends gets that time as its end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from tuner.domain.attempt import Cause, Outcome
from tuner.queries.dispatchers import has_our_tables, read_last_signs
from tuner.queries.trials.attempts import StoredAttempt
from tuner.store.optuna_tables.statements import in_zone, of_trials
from tuner.store.schema.models import AttemptRow, table_of

_ATTEMPTS = table_of(AttemptRow)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptTimes:
    """All attempts of one trial together."""

    #: Start of the first attempt.
    begun_at: datetime
    #: The end of the last attempt that has ended; None before one has.
    left_at: datetime | None = None
    #: Duration of all attempts that have ended, in seconds.
    ended_s: float = 0.0
    #: Start of the unfinished attempt; None without one.
    open_since: datetime | None = None
    #: The last heartbeat of the dispatcher that died during that attempt; None if it is alive.
    abandoned_at: datetime | None = None
    #: Outcome of the last attempt; None while it runs.
    outcome: Outcome | None = None
    #: Cause of the last attempt; None while it runs, and if its program returned a result.
    cause: Cause | None = None

    def duration_s(self, now: datetime | None) -> float:
        """Seconds in attempts.

        Args:
            now: Up to when an attempt that has not ended counts; None: it does not count.
        """
        if self.open_since is None or now is None:
            return self.ended_s
        until = min(now, self.abandoned_at) if self.abandoned_at else now
        return self.ended_s + max(0.0, (until - self.open_since).total_seconds())

    def then(
        self,
        begun_at: datetime,
        ended_at: datetime | None,
        outcome: Outcome | None,
        cause: Cause | None,
        *,
        abandoned_at: datetime | None = None,
    ) -> AttemptTimes:
        """The times with one more attempt.

        Args:
            begun_at: When it got its devices.
            ended_at: None if it has not ended.
            outcome: None while it runs.
            cause: Cause of the outcome.
            abandoned_at: The last heartbeat of its dispatcher, if that has died.
        """
        if ended_at is None:
            return AttemptTimes(
                begun_at=self.begun_at,
                left_at=self.left_at,
                ended_s=self.ended_s,
                open_since=begun_at,
                abandoned_at=abandoned_at,
                outcome=outcome,
                cause=cause,
            )
        took_s = max(0.0, (ended_at - begun_at).total_seconds())
        return AttemptTimes(
            begun_at=self.begun_at,
            left_at=ended_at,
            ended_s=self.ended_s + took_s,
            outcome=outcome,
            cause=cause,
        )


def times_of(
    attempts: Iterable[StoredAttempt], last_signs: Mapping[int, datetime]
) -> AttemptTimes | None:
    """Times of one trial; None without attempts.

    Args:
        attempts: The trial's attempts, in order.
        last_signs: Last heartbeats of dead dispatchers, by id.
    """
    times: AttemptTimes | None = None
    for each in attempts:
        if each.leased_at is not None:
            times = times or AttemptTimes(begun_at=each.leased_at)
            left_at = each.ended_at or each.finished_at
            times = times.then(
                each.leased_at,
                left_at,
                each.outcome,
                each.cause,
                abandoned_at=last_signs.get(each.dispatcher_id),
            )
    return times


def read_attempt_times(
    connection: sa.Connection,
    study_id: int,
    trial_ids: Collection[int] | None = None,
    *,
    now: datetime,
) -> dict[int, AttemptTimes]:
    """By trial id; trials without an attempt are left out.

    Args:
        connection: One that sees a single instant.
        study_id: Whose trials.
        trial_ids: Only these, or nearly; None: all of the study.
        now: Tells dispatchers that are alive from those that died.
    """
    if not has_our_tables(connection):
        return {}
    columns = _ATTEMPTS.c
    query = (
        of_trials(_ATTEMPTS, study_id, trial_ids)
        .with_only_columns(
            columns.trial_id,
            columns.dispatcher_id,
            columns.outcome,
            columns.cause,
            columns.leased_at,
            sa.func.coalesce(columns.ended_at, columns.finished_at).label("left_at"),
        )
        .order_by(columns.trial_id, columns.number)
    )
    found: dict[int, AttemptTimes] = {}
    rows = connection.execute(query).all()
    is_any_open = any(row.left_at is None for row in rows)
    last_signs = read_last_signs(connection, now, study_id) if is_any_open else {}
    for trial_id, dispatcher_id, outcome, cause, leased_at, left_at in rows:
        begun_at = in_zone(leased_at)
        times = found.get(trial_id) or AttemptTimes(begun_at=begun_at)
        ended_at = in_zone(left_at) if left_at else None
        abandoned_at = last_signs.get(dispatcher_id)
        found[trial_id] = times.then(begun_at, ended_at, outcome, cause, abandoned_at=abandoned_at)
    return found
