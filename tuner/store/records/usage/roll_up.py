"""Rolls old samples of devices up: seconds for an hour, ten seconds for a day, then minutes.

Sums are added and maxima compared by the database, in one transaction for a part at a time, so
that no trial waits for long and a crash leaves each part as it was or as it becomes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import sqlalchemy as sa

from tuner.devices.usage.tally import FIGURES, MAXIMA
from tuner.store.schema.models import DispatcherRow, UsageRow, table_of

#: Rows of one transaction.
MOST_ROWS = 5_000
_USAGE = table_of(UsageRow)
_DISPATCHERS = table_of(DispatcherRow)
_KEY = ("dispatcher_id", "span_s", "start_s", "device_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Rows of one span become rows of a longer one when they are old."""

    span_s: int
    becomes_s: int
    kept_s: int


LEVELS = (
    Level(span_s=1, becomes_s=10, kept_s=3_600),
    Level(span_s=10, becomes_s=60, kept_s=86_400),
)


class _Part(NamedTuple):
    level: Level
    dispatcher_id: int
    begin_s: int
    end_s: int


def roll_up(connection: sa.Connection, own_id: int, now_s: int) -> bool:
    """Rolls up one part of the samples of this dispatcher or of an ended one.

    Args:
        connection: In a transaction, while no other of this dispatcher runs.
        own_id: This dispatcher's record.
        now_s: Seconds since the epoch.

    Returns:
        Whether there was any work; there may be more.
    """
    for level in LEVELS:
        part = _find(connection, level, own_id, now_s)
        if part is not None:
            _lock(connection, part.dispatcher_id)
            # Again: another dispatcher may have been quicker.
            part = _find(connection, level, own_id, now_s, only_id=part.dispatcher_id)
            if part is not None:
                _replace(connection, part)
            return True
    return False


def _find(
    connection: sa.Connection, level: Level, own_id: int, now_s: int, only_id: int | None = None
) -> _Part | None:
    until_s = now_s - level.kept_s
    until_s -= until_s % level.becomes_s
    old = sa.and_(
        _USAGE.c.dispatcher_id == _DISPATCHERS.c.id,
        _USAGE.c.span_s == level.span_s,
        _USAGE.c.start_s < until_s,
    )
    may_change = sa.or_(_DISPATCHERS.c.id == own_id, _DISPATCHERS.c.ended_at.is_not(None))
    query = sa.select(_DISPATCHERS.c.id).where(may_change, sa.exists().where(old)).limit(1)
    if only_id is not None:
        query = query.where(_DISPATCHERS.c.id == only_id)
    found = connection.execute(query).scalar()
    if found is None:
        return None
    starts = (
        sa.select(_USAGE.c.start_s)
        .where(
            _USAGE.c.dispatcher_id == found,
            _USAGE.c.span_s == level.span_s,
            _USAGE.c.start_s < until_s,
        )
        .order_by(_USAGE.c.start_s)
    )
    first_s = connection.execute(starts.limit(1)).scalar()
    if first_s is None:
        return None  # Another dispatcher has rolled it up since.
    begin_s = first_s - first_s % level.becomes_s
    beyond_s = connection.execute(starts.offset(MOST_ROWS).limit(1)).scalar()
    end_s = until_s
    if beyond_s is not None:
        end_s = max(beyond_s - beyond_s % level.becomes_s, begin_s + level.becomes_s)
    return _Part(level, found, begin_s, min(end_s, until_s))


def _lock(connection: sa.Connection, dispatcher_id: int) -> None:
    """Locks a dispatcher's samples where several programs may write at once."""
    if connection.dialect.name != "sqlite":
        row = sa.select(_DISPATCHERS.c.id).where(_DISPATCHERS.c.id == dispatcher_id)
        connection.execute(row.with_for_update())


def _replace(connection: sa.Connection, part: _Part) -> None:
    level = part.level
    is_in_part = sa.and_(
        _USAGE.c.dispatcher_id == part.dispatcher_id,
        _USAGE.c.span_s == level.span_s,
        _USAGE.c.start_s >= part.begin_s,
        _USAGE.c.start_s < part.end_s,
    )
    # No parameter: PostgreSQL would treat the grouped one as a different expression.
    becomes_s: sa.ColumnClause[int] = sa.literal_column(str(level.becomes_s), sa.BigInteger)
    start_s = _USAGE.c.start_s - _USAGE.c.start_s % becomes_s
    summed = (
        sa.select(
            _USAGE.c.dispatcher_id,
            becomes_s.label("span_s"),
            start_s.label("start_s"),
            _USAGE.c.device_id,
            *summed_figures(),
        )
        .where(is_in_part)
        .group_by(_USAGE.c.dispatcher_id, start_s, _USAGE.c.device_id)
    )
    connection.execute(sa.insert(_USAGE).from_select([*_KEY, *FIGURES], summed))
    connection.execute(sa.delete(_USAGE).where(is_in_part))


def summed_figures() -> Sequence[sa.Label[int]]:
    """All figures of several rows together, as `Tally.add` adds them."""
    return [
        (sa.func.max if name in MAXIMA else sa.func.sum)(_USAGE.c[name]).label(name)
        for name in FIGURES
    ]
