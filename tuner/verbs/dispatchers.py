"""Who works on a study, or did."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from tuner.errors import StoreError
from tuner.store.models import AttemptRow, DispatcherRow, HostRow
from tuner.store.starts import STALE_AFTER_S, OpenDispatcher
from tuner.verbs.optuna_tables import aware, in_zone


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDispatcher:
    """One start of `python -m tuner.run`."""

    id: int
    study_id: int
    host: str
    pid: int
    started_at: datetime
    #: Its last sign of life.
    beat_at: datetime
    #: None where it works, or died.
    ended_at: datetime | None
    #: Why it ended, for people; empty where it works, or died.
    end_reason: str
    is_alive: bool
    #: Whether it lives and has given no sign of life for long: it hangs, was stopped, or cannot
    #: reach the database.
    is_silent: bool = False
    #: Names of those that it has; empty where an older tuner did not say.
    devices: tuple[str, ...] = ()


def has_our_tables(connection: sa.Connection) -> bool:
    """False in a database that only Optuna has used."""
    return sa.inspect(connection).has_table(AttemptRow.__tablename__)


def read_dispatchers(
    connection: sa.Connection, now: datetime, study_id: int | None = None
) -> list[StoredDispatcher]:
    """All starts, the oldest first; of one study, or of all."""
    if not has_our_tables(connection):
        return []
    query = (
        sa.select(
            DispatcherRow.id,
            DispatcherRow.study_id,
            HostRow.name,
            DispatcherRow.pid,
            DispatcherRow.process_created_at_s,
            DispatcherRow.started_at,
            DispatcherRow.beat_at,
            DispatcherRow.ended_at,
            DispatcherRow.end_reason,
            DispatcherRow.devices,
        )
        .join(HostRow, HostRow.id == DispatcherRow.host_id)
        .order_by(DispatcherRow.id)
    )
    if study_id is not None:
        query = query.where(DispatcherRow.study_id == study_id)
    rows: sa.CursorResult[Any] = connection.execute(query)
    return [_dispatcher(row, now) for row in rows]


def refuse_living(connection: sa.Connection, study_id: int, now: datetime, verb: str) -> None:
    """
    Raises:
        StoreError: If a dispatcher that is alive works on the study.
    """
    for each in read_dispatchers(connection, now, study_id):
        if each.is_alive:
            raise StoreError(
                f"This study is being run, on {each.host} (pid {each.pid}, since "
                f"{each.started_at:%Y-%m-%d %H:%M} UTC). End it there with Ctrl-C, then {verb}."
            )


def _dispatcher(row: sa.Row[Any], now: datetime) -> StoredDispatcher:
    dispatcher = OpenDispatcher(
        id=row.id,
        host=row.name,
        pid=row.pid,
        process_created_at_s=row.process_created_at_s,
        started_at=row.started_at,
        beat_at=row.beat_at,
    )
    is_alive = row.ended_at is None and dispatcher.is_working(socket.gethostname(), now)
    return StoredDispatcher(
        id=row.id,
        study_id=row.study_id,
        host=row.name,
        pid=row.pid,
        started_at=in_zone(row.started_at),
        beat_at=in_zone(row.beat_at),
        ended_at=aware(row.ended_at),
        end_reason=row.end_reason,
        is_alive=is_alive,
        is_silent=is_alive and dispatcher.silent_s(now) >= STALE_AFTER_S,
        devices=tuple(row.devices or ()),
    )
