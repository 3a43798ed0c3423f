"""Small things that every writer of the tuner's tables needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa


def insert_row(connection: sa.Connection, insert: sa.Insert, row: Mapping[str, object]) -> int:
    key = connection.execute(insert, row).inserted_primary_key
    assert key is not None
    return int(key[0])


def execute_rows(
    connection: sa.Connection, statement: sa.Executable, rows: Sequence[Mapping[str, object]]
) -> sa.CursorResult[Any] | None:
    """Executes a statement for each row; returns None if there are no rows.

    For several rows psycopg switches its pipeline mode on and off, which takes longer than a single
    row alone.
    """
    if not rows:
        return None
    return connection.execute(statement, rows[0] if len(rows) == 1 else rows)


def find_or_insert(
    connection: sa.Connection,
    query: sa.Select[Any],
    insert: sa.Insert,
    row: Mapping[str, object],
) -> int:
    """The id that `query` finds, or of a new row; safe if others insert it at the same time."""
    found = connection.execute(query).scalar()
    if found is not None:
        return int(found)
    try:
        with connection.begin_nested():
            return insert_row(connection, insert, row)
    except sa.exc.IntegrityError:
        return int(connection.execute(query).scalar_one())


def as_stored(at: datetime | None) -> datetime | None:
    return in_utc(at) if at else None


def in_utc(at: datetime) -> datetime:
    """Without a zone, as in Optuna's tables."""
    return at.astimezone(UTC).replace(tzinfo=None)
