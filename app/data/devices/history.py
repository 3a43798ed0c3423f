"""Activity and idle times of devices, from their samples, as columns.

The database aggregates samples to the columns of a chart. Samples older than some minutes only move
to coarser ones: results for them are cached between reads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

import numpy as np
import sqlalchemy as sa

from tuner.app.data.columns import Columns, Floats, Numbers, joined
from tuner.app.data.connection import ReadOnlyDatabase
from tuner.app.data.devices.samples import Bins, Present, Window, bins_of, read_bins, read_present
from tuner.app.data.trials.columns import seconds
from tuner.devices.idle_causes import IdleCause
from tuner.queries.dispatchers import has_our_tables
from tuner.queries.locate import StoredStudy
from tuner.store.schema.models import DispatcherRow, IdleRow, table_of
from tuner.store.schema.statements import in_utc

T = TypeVar("T")

_IDLE = table_of(IdleRow)
#: Seconds after which history is written and does not change.
SETTLED_S = 600
CAUSES = tuple(IdleCause)
_CAUSE_CODES = {cause: code for code, cause in enumerate(CAUSES)}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IdleColumns(Columns):
    """Times in which devices had no trial."""

    device_ids: Numbers
    #: Places in `CAUSES`.
    causes: Numbers
    began_s: Floats
    ended_s: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """History of the devices of a study, or of a whole database."""

    window: Window
    bins: Bins
    idle: IdleColumns
    #: By device.
    present: Mapping[int, Present]


class DeviceHistory:
    """Reads the history of devices.

    Args:
        database: The database.
    """

    def __init__(self, database: ReadOnlyDatabase) -> None:
        self._database = database
        self._bins: _Settled[Bins] = _Settled()
        self._idle: _Settled[IdleColumns] = _Settled()

    def read(self, study: StoredStudy | None, window: Window, now: datetime) -> History:
        """The history for one study, or for all.

        Raises:
            StoreError: If the database can't be read now.
        """
        return self._database.read(lambda connection: self._read(connection, study, window, now))

    def _read(
        self, connection: sa.Connection, study: StoredStudy | None, window: Window, now: datetime
    ) -> History:
        if not has_our_tables(connection):
            return History(window=window, bins=bins_of([], 1), idle=_idle([]), present={})
        dispatchers = _dispatchers(connection, study)
        step_s = max(SETTLED_S, window.width_s)
        cut_s = int((now.timestamp() - SETTLED_S) // step_s) * step_s
        key = (study, tuple(dispatchers), window.width_s, cut_s)

        def bins(begin_s: int, end_s: int) -> Bins:
            return read_bins(connection, dispatchers, begin_s, end_s, window.width_s)

        def idle(begin_s: int, end_s: int) -> IdleColumns:
            return _read_idle(connection, dispatchers, begin_s, end_s)

        all_bins = joined(self._bins.read(key, window.start_s, cut_s, window.end_s, bins))
        is_shown = (all_bins.starts_s >= window.start_s) & (all_bins.starts_s < window.end_s)
        whole_idle = self._idle.read(key, window.start_s, cut_s, 2**40, idle)
        return History(
            window=window,
            bins=all_bins.where(is_shown),
            idle=joined(whole_idle),
            present=read_present(connection, dispatchers, now),
        )


class _Settled(Generic[T]):
    """Keeps the last answer about a time that is settled."""

    def __init__(self) -> None:
        self._key: object = None
        self._begin_s = 0
        self._kept: T | None = None
        self._lock = threading.Lock()

    def read(
        self, key: object, begin_s: int, cut_s: int, end_s: int, read: Callable[[int, int], T]
    ) -> list[T]:
        """History from a beginning, or earlier, to a cut, and from there to an end."""
        with self._lock:
            kept = self._kept if key == self._key and begin_s >= self._begin_s else None
        if kept is None:
            kept = read(begin_s, cut_s)
            with self._lock:
                self._key, self._begin_s, self._kept = key, begin_s, kept
        return [kept, read(max(cut_s, begin_s), end_s)]


def _dispatchers(connection: sa.Connection, study: StoredStudy | None) -> list[int]:
    query = sa.select(DispatcherRow.id).order_by(DispatcherRow.id)
    if study is not None:
        query = query.where(DispatcherRow.study_id == study.id)
    return list(connection.execute(query).scalars())


def _read_idle(
    connection: sa.Connection, dispatchers: Sequence[int], begin_s: int, end_s: int
) -> IdleColumns:
    """Idle times that ended in a span, or last so far."""
    query = (
        sa.select(_IDLE.c.device_id, _IDLE.c.cause, _IDLE.c.began_at, _IDLE.c.ended_at)
        .where(_IDLE.c.dispatcher_id.in_(dispatchers), _IDLE.c.ended_at >= _stored(begin_s))
        .order_by(_IDLE.c.began_at)
    )
    if end_s < 2**40:
        query = query.where(_IDLE.c.ended_at < _stored(end_s))
    rows: sa.CursorResult[Any] = connection.execute(query)
    return _idle([tuple(row) for row in rows])


def _idle(rows: Sequence[Sequence[Any]]) -> IdleColumns:
    return IdleColumns(
        device_ids=np.array([row[0] for row in rows], dtype=np.int64),
        causes=np.array([_CAUSE_CODES[row[1]] for row in rows], dtype=np.int64),
        began_s=np.array([seconds(row[2]) for row in rows], dtype=np.float64),
        ended_s=np.array([seconds(row[3]) for row in rows], dtype=np.float64),
    )


def _stored(at_s: float) -> datetime:
    return in_utc(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=at_s))
