"""Dispatchers of a study, live and ended."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from tuner.host.process_identity import Life, ProcessIdentity, life_of, own_process
from tuner.store.optuna_tables.statements import aware, in_zone
from tuner.store.records.dispatchers.silence import STALE_AFTER_S
from tuner.store.records.dispatchers.starts import OpenDispatcher, process_of
from tuner.store.records.programs import code_text
from tuner.store.schema.models import AttemptRow, DispatcherRow, HostRow


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
    #: None if it is live, or died.
    ended_at: datetime | None
    #: Why it ended, as text; empty if it is live, or died.
    end_reason: str
    #: For display: if its process cannot be checked from here, two clocks are compared.
    is_alive: bool
    #: Whether it is alive but has missed heartbeats for long: it hangs, was suspended, or cannot
    #: reach the database.
    is_silent: bool = False
    #: Whether it is not proven dead: only if false may its records be changed.
    may_live: bool = False
    #: Names of its devices; empty for older versions.
    devices: tuple[str, ...] = ()
    #: Which code it runs, such as `snapshot 1f3a...`; empty where that is not known.
    code: str = ""


def living_here(dispatchers: Iterable[StoredDispatcher]) -> frozenset[int]:
    """Pids of the live dispatchers on this host."""
    host = socket.gethostname()
    return frozenset(each.pid for each in dispatchers if each.is_alive and each.host == host)


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
            DispatcherRow.versions,
            DispatcherRow.started_at,
            DispatcherRow.beat_at,
            DispatcherRow.ended_at,
            DispatcherRow.end_reason,
            DispatcherRow.devices,
            DispatcherRow.git_commit,
            DispatcherRow.git_is_dirty,
        )
        .join(HostRow, HostRow.id == DispatcherRow.host_id)
        .order_by(DispatcherRow.id)
    )
    if study_id is not None:
        query = query.where(DispatcherRow.study_id == study_id)
    rows: sa.CursorResult[Any] = connection.execute(query)
    here = own_process()
    return [_dispatcher(row, here, now) for row in rows]


def is_run_by_tuner(connection: sa.Connection, study_id: int) -> bool:
    """Whether a dispatcher has ever worked on a study."""
    if not has_our_tables(connection):
        return False
    query = sa.select(DispatcherRow.id).where(DispatcherRow.study_id == study_id).limit(1)
    return connection.execute(query).first() is not None


def read_last_signs(connection: sa.Connection, now: datetime, study_id: int) -> dict[int, datetime]:
    """Last heartbeats of the dispatchers that are not alive, by id."""
    starts = read_dispatchers(connection, now, study_id)
    return {each.id: each.ended_at or each.beat_at for each in starts if not each.is_alive}


def _dispatcher(row: sa.Row[Any], here: ProcessIdentity, now: datetime) -> StoredDispatcher:
    dispatcher = OpenDispatcher(
        id=row.id,
        process=process_of(row.name, row.pid, row.versions),
        started_at=row.started_at,
        beat_at=row.beat_at,
    )
    life = Life.GONE if row.ended_at is not None else life_of(dispatcher.process, here=here)
    is_silent = dispatcher.silent_s(now) >= STALE_AFTER_S
    is_alive = life is Life.ALIVE or (life is Life.UNKNOWN and not is_silent)
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
        may_live=life is not Life.GONE,
        is_silent=is_alive and is_silent,
        devices=tuple(row.devices or ()),
        code=code_text(row.versions, row.git_commit, row.git_is_dirty),
    )
