"""Reads the earlier attempts of a trial, by any dispatcher."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa

from tuner.domain.attempt import Ending, Outcome
from tuner.store.schema.models import AttemptRow, MetricRow

_N_IDS_IN_QUERY = 500


def attempts_of(connection: sa.Connection, trial_id: int) -> int:
    """Number of a trial's attempts."""
    query = sa.select(sa.func.max(AttemptRow.number)).where(AttemptRow.trial_id == trial_id)
    return int(connection.execute(query).scalar() or 0)


def begun_at(connection: sa.Connection, trial_id: int) -> datetime | None:
    """When the first attempt of a trial got its devices, in UTC without a zone; or None."""
    query = (
        sa.select(AttemptRow.leased_at)
        .where(AttemptRow.trial_id == trial_id)
        .order_by(AttemptRow.number)
        .limit(1)
    )
    return connection.execute(query).scalar()


def begun_at_of(connection: sa.Connection, trial_ids: Sequence[int]) -> dict[int, datetime]:
    """When the first attempt of each trial got its devices, by trial id.

    Trials without attempts are left out.
    """
    found: dict[int, datetime] = {}
    query = sa.select(AttemptRow.trial_id, AttemptRow.leased_at).order_by(AttemptRow.number)
    for first in range(0, len(trial_ids), _N_IDS_IN_QUERY):
        some = trial_ids[first : first + _N_IDS_IN_QUERY]
        for trial_id, leased_at in connection.execute(query.where(AttemptRow.trial_id.in_(some))):
            found.setdefault(trial_id, leased_at)
    return found


def has_lost(connection: sa.Connection, trial_id: int, *, after: int, before: int) -> bool:
    """Whether an attempt between two others ended without its dispatcher seeing the end.

    Args:
        connection: Connection to the database.
        trial_id: The trial.
        after: Number of the attempt before the range.
        before: Number of the attempt after the range.
    """
    is_lost = sa.or_(AttemptRow.outcome.is_(None), AttemptRow.outcome == Outcome.LOST)
    query = (
        sa.select(sa.func.count())
        .where(AttemptRow.trial_id == trial_id, is_lost)
        .where(AttemptRow.number > after, AttemptRow.number < before)
    )
    return bool(connection.execute(query).scalar())


def endings_of(connection: sa.Connection, trial_id: int, *, after: int = 0) -> list[Ending]:
    """The recorded endings of a trial's attempts, the oldest first.

    Args:
        connection: Connection to the database.
        trial_id: The trial.
        after: Number of an attempt; only later ones are returned.
    """
    query = (
        sa.select(AttemptRow.outcome, AttemptRow.cause, AttemptRow.detail)
        .where(AttemptRow.trial_id == trial_id, AttemptRow.number > after)
        .order_by(AttemptRow.number)
    )
    rows = connection.execute(query).all()
    return [Ending(outcome=row[0], cause=row[1], detail=row[2]) for row in rows if row[0]]


def lost_in_a_row(connection: sa.Connection, trial_id: int, *, after: int) -> int:
    """Number of a trial's last consecutive attempts that were lost after they had started.

    Attempts that were lost before they started, or whose end is not recorded, are skipped.

    Args:
        connection: Connection to the database.
        trial_id: The trial.
        after: Number of an attempt; only later ones are counted.
    """
    query = (
        sa.select(AttemptRow.outcome, AttemptRow.started_at)
        .where(AttemptRow.trial_id == trial_id, AttemptRow.number > after)
        .where(AttemptRow.outcome.is_not(None))
        .order_by(AttemptRow.number.desc())
    )
    rows = connection.execute(query).all()
    last = itertools.takewhile(lambda row: row.outcome is Outcome.LOST, rows)
    return sum(row.started_at is not None for row in last)


def last_metric_step(connection: sa.Connection, trial_id: int) -> int:
    """The largest step at which a trial reported a metric; -1 for none."""
    query = (
        sa.select(sa.func.max(MetricRow.step))
        .join(AttemptRow, AttemptRow.id == MetricRow.attempt_id)
        .where(AttemptRow.trial_id == trial_id)
    )
    step = connection.execute(query).scalar()
    return -1 if step is None else int(step)


def explain_last(connection: sa.Connection, trial_id: int, detail: str) -> None:
    """Adds to the last attempt of a trial why it was the last."""
    last = (
        sa.select(AttemptRow.id, AttemptRow.detail)
        .where(AttemptRow.trial_id == trial_id)
        .order_by(AttemptRow.number.desc())
        .limit(1)
    )
    row = connection.execute(last).first()
    if row is not None and detail not in row.detail:
        change = sa.update(AttemptRow).where(AttemptRow.id == row.id)
        connection.execute(change.values(detail=f"{row.detail}\n{detail}".strip()))
