"""Activity of devices from their samples, as columns.

The database aggregates samples to the columns of a chart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import sqlalchemy as sa

from tuner.app.data.columns import Columns, Floats, Numbers
from tuner.devices.usage.tally import MIB, MJ_PER_KWH
from tuner.store.records.usage.roll_up import LEVELS
from tuner.store.schema.models import UsageRow, table_of

_USAGE = table_of(UsageRow)
#: Possible widths of a chart column, in seconds.
_WIDTHS = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 21_600, 86_400)
_MAX_COLUMNS = 240
#: Maximum age in seconds of a sample that counts as current.
_PRESENT_S = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A time span, in seconds since the epoch, and the width of its columns."""

    start_s: int
    end_s: int
    width_s: int

    @property
    def starts_s(self) -> Numbers:
        """Start of each column."""
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
class Bins(Columns):
    """Activity of each device in each column of time; NaN if unknown."""

    device_ids: Numbers
    starts_s: Numbers
    covered_s: Floats
    utilization_pct: Floats
    memory_bytes: Floats
    memory_max_bytes: Floats
    energy_kwh: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """The newest sample of a device; unreported values are None."""

    at_s: int
    utilization_pct: float | None
    memory_bytes: float | None
    power_w: float | None
    temperature_c: float | None
    sm_clock_mhz: float | None
    #: Received and sent together, a second.
    pcie_bytes_s: float | None
    nvlink_bytes_s: float | None


def read_bins(
    connection: sa.Connection, dispatchers: Sequence[int], begin_s: int, end_s: int, width_s: int
) -> Bins:
    """Bins of all devices sampled by some dispatchers, unordered.

    Args:
        connection: To a database with the tuner's tables.
        dispatchers: Ids of the dispatchers.
        begin_s: Seconds since the epoch, a multiple of the width.
        end_s: End of the last column, or later.
        width_s: Width of a column.
    """
    # No parameter: PostgreSQL would treat the grouped one as a different expression.
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
    return bins_of([tuple(row) for row in rows], width_s)


def bins_of(rows: Sequence[Sequence[Any]], width_s: int) -> Bins:
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


def read_present(
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
