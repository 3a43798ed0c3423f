"""What devices did and when they stood idle, from their samples, as columns.

The database adds up samples for as many columns as a chart shows. What is older than some minutes
does not change any more, but for its place in coarser samples: it is kept between two looks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from app.data.connection import ReadOnlyDatabase
from app.data.trial_columns import Floats, Numbers, seconds
from tuner.devices.usage_tally import MIB, MJ_PER_KWH
from tuner.dispatch.idle import IdleCause
from tuner.store.models import DispatcherRow, IdleRow, UsageRow, table_of
from tuner.store.roll_up import LEVELS
from tuner.store.rows import in_utc
from tuner.verbs.dispatchers import has_our_tables
from tuner.verbs.source import StoredStudy

T = TypeVar("T")

_USAGE = table_of(UsageRow)
_IDLE = table_of(IdleRow)
#: Seconds of a column of a heat map: nobody counts in sevens.
_WIDTHS = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 21_600, 86_400)
_MAX_COLUMNS = 240
#: What happened before that is written, and does not change.
_SETTLED_S = 600
#: A sample that is older says nothing about the present.
_PRESENT_S = 20
CAUSES = tuple(IdleCause)
_CAUSE_CODES = {cause: code for code, cause in enumerate(CAUSES)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A part of time, in seconds since the epoch, and how wide the columns in it are."""

    start_s: int
    end_s: int
    width_s: int

    @property
    def starts_s(self) -> Numbers:
        """Where each column begins."""
        return np.arange(self.start_s, self.end_s, self.width_s)


def window_of(start_s: float, end_s: float, now_s: float) -> Window:
    """The columns of a chart. None is narrower than the samples that are left of its time."""
    oldest_s = now_s - start_s
    least_s = max((each.becomes_s for each in LEVELS if oldest_s > each.kept_s), default=1)
    wanted_s = max((end_s - start_s) / _MAX_COLUMNS, least_s)
    width_s = next((each for each in _WIDTHS if each >= wanted_s), _WIDTHS[-1])
    first_s, last_s = int(start_s // width_s) * width_s, int(-(-end_s // width_s)) * width_s
    return Window(start_s=first_s, end_s=max(last_s, first_s + width_s), width_s=width_s)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bins:
    """What each device did in each column of time; NaN where nothing is known."""

    device_ids: Numbers
    starts_s: Numbers
    covered_s: Floats
    utilization_pct: Floats
    memory_bytes: Floats
    memory_max_bytes: Floats
    energy_kwh: Floats

    def where(self, chosen: npt.NDArray[np.bool_]) -> Bins:
        return Bins(**{each.name: getattr(self, each.name)[chosen] for each in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IdleColumns:
    """Times in which devices had no trial."""

    device_ids: Numbers
    #: Places in `CAUSES`.
    causes: Numbers
    began_s: Floats
    ended_s: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """The newest sample of a device; what it does not tell is None."""

    at_s: int
    utilization_pct: float | None
    memory_bytes: float | None
    power_w: float | None
    temperature_c: float | None
    sm_clock_mhz: float | None
    #: Received and sent together, a second.
    pcie_bytes_s: float | None
    nvlink_bytes_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What is known of the devices of a study, or of all of a database."""

    window: Window
    bins: Bins
    idle: IdleColumns
    #: By device.
    present: Mapping[int, Present]


class DeviceHistory:
    """Reads what devices did.

    Args:
        database: Where.
    """

    def __init__(self, database: ReadOnlyDatabase) -> None:
        self._database = database
        self._bins: _Settled[Bins] = _Settled()
        self._idle: _Settled[IdleColumns] = _Settled()

    def read(self, study: StoredStudy | None, window: Window, now: datetime) -> History:
        """Of a study, or of all.

        Raises:
            StoreError: If the database can't be read now.
        """
        return self._database.read(lambda connection: self._read(connection, study, window, now))

    def _read(
        self, connection: sa.Connection, study: StoredStudy | None, window: Window, now: datetime
    ) -> History:
        if not has_our_tables(connection):
            return History(window=window, bins=_bins([], 1), idle=_idle([]), present={})
        dispatchers = _dispatchers(connection, study)
        step_s = max(_SETTLED_S, window.width_s)
        cut_s = int((now.timestamp() - _SETTLED_S) // step_s) * step_s
        key = (study, tuple(dispatchers), window.width_s, cut_s)

        def bins(begin_s: int, end_s: int) -> Bins:
            return _read_bins(connection, dispatchers, begin_s, end_s, window.width_s)

        def idle(begin_s: int, end_s: int) -> IdleColumns:
            return _read_idle(connection, dispatchers, begin_s, end_s)

        all_bins = _joined(self._bins.read(key, window.start_s, cut_s, window.end_s, bins), Bins)
        is_shown = (all_bins.starts_s >= window.start_s) & (all_bins.starts_s < window.end_s)
        whole_idle = self._idle.read(key, window.start_s, cut_s, 2**40, idle)
        return History(
            window=window,
            bins=all_bins.where(is_shown),
            idle=_joined(whole_idle, IdleColumns),
            present=_read_present(connection, dispatchers, now),
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
        """What happened from a beginning, or earlier, to a cut, and from there to an end."""
        with self._lock:
            kept = self._kept if key == self._key and begin_s >= self._begin_s else None
        if kept is None:
            kept = read(begin_s, cut_s)
            with self._lock:
                self._key, self._begin_s, self._kept = key, begin_s, kept
        return [kept, read(max(cut_s, begin_s), end_s)]


def _joined(parts: Sequence[T], kind: type[T]) -> T:
    names = [each.name for each in fields(kind)]  # type: ignore[arg-type]  # T is a dataclass, which no bound can say
    return kind(**{name: np.concatenate([getattr(p, name) for p in parts]) for name in names})


def _dispatchers(connection: sa.Connection, study: StoredStudy | None) -> list[int]:
    query = sa.select(DispatcherRow.id).order_by(DispatcherRow.id)
    if study is not None:
        query = query.where(DispatcherRow.study_id == study.id)
    return list(connection.execute(query).scalars())


# -- samples -------------------------------------------------------------------------------------


def _read_bins(
    connection: sa.Connection, dispatchers: Sequence[int], begin_s: int, end_s: int, width_s: int
) -> Bins:
    # No parameter: PostgreSQL would take the one that is grouped by for another expression.
    width: sa.ColumnClause[int] = sa.literal_column(str(width_s), sa.BigInteger)
    start = _USAGE.c.start_s - _USAGE.c.start_s % width
    query = (
        sa.select(
            _USAGE.c.device_id,
            start.label("start_s"),
            sa.func.sum(_USAGE.c.covered_ms).label("covered_ms"),
            sa.func.sum(_USAGE.c.utilization_pct_ms).label("utilization_pct_ms"),
            sa.func.sum(_USAGE.c.memory_mib_ms).label("memory_mib_ms"),
            sa.func.max(_USAGE.c.memory_max_mib).label("memory_max_mib"),
            sa.func.sum(_USAGE.c.energy_mj).label("energy_mj"),
        )
        .where(
            _USAGE.c.dispatcher_id.in_(dispatchers),
            _USAGE.c.span_s.in_([1, *(each.becomes_s for each in LEVELS)]),
            _USAGE.c.start_s >= begin_s,
            _USAGE.c.start_s < end_s,
        )
        .group_by(_USAGE.c.device_id, start)
    )
    rows: sa.CursorResult[Any] = connection.execute(query)
    return _bins([tuple(row) for row in rows], width_s)


def _bins(rows: Sequence[Sequence[Any]], width_s: int) -> Bins:
    table = np.array(rows, dtype=np.float64).reshape(len(rows), 7)
    device_ids, starts_s, covered_ms, utilization, memory, memory_max, energy = table.T
    # Two dispatchers that looked at the same device saw the same.
    n_times = np.maximum(1.0, covered_ms / (1000 * width_s))
    return Bins(
        device_ids=device_ids.astype(np.int64),
        starts_s=starts_s.astype(np.int64),
        covered_s=covered_ms / n_times / 1000,
        utilization_pct=utilization / covered_ms,
        memory_bytes=memory / covered_ms * MIB,
        memory_max_bytes=memory_max * MIB,
        energy_kwh=energy / n_times / MJ_PER_KWH,
    )


def _read_present(
    connection: sa.Connection, dispatchers: Sequence[int], now: datetime
) -> dict[int, Present]:
    query = (
        sa.select(_USAGE)
        .where(
            _USAGE.c.dispatcher_id.in_(dispatchers),
            _USAGE.c.span_s == 1,
            _USAGE.c.start_s >= int(now.timestamp()) - _PRESENT_S,
        )
        .order_by(_USAGE.c.start_s)
    )
    rows: sa.CursorResult[Any] = connection.execute(query)
    return {row.device_id: _present(row) for row in rows}


def _present(row: sa.Row[Any]) -> Present:
    def mean(total: int | None, scale: float = 1.0) -> float | None:
        return None if total is None or not row.covered_ms else scale * total / row.covered_ms

    def rate(*totals: int | None) -> float | None:
        told = [each for each in totals if each is not None]
        return mean(sum(told), 1024 * 1000) if told else None

    return Present(
        at_s=row.start_s,
        utilization_pct=mean(row.utilization_pct_ms),
        memory_bytes=mean(row.memory_mib_ms, MIB),
        power_w=mean(row.energy_mj),
        temperature_c=mean(row.temperature_c_ms),
        sm_clock_mhz=mean(row.sm_clock_mhz_ms),
        pcie_bytes_s=rate(row.pcie_rx_kib, row.pcie_tx_kib),
        nvlink_bytes_s=rate(row.nvlink_rx_kib, row.nvlink_tx_kib),
    )


# -- idle times ----------------------------------------------------------------------------------


def _read_idle(
    connection: sa.Connection, dispatchers: Sequence[int], begin_s: int, end_s: int
) -> IdleColumns:
    """Those that ended in a time, or did so far."""
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
