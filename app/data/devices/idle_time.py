"""When devices had no trial: bars for a timeline, and totals with their causes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tuner.app.data.devices.history import CAUSES, IdleColumns
from tuner.app.data.devices.samples import Bins
from tuner.app.data.devices.timeline import MAX_BARS_OF_A_DEVICE, DeviceTotal
from tuner.devices.idle_causes import IdleCause


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleBar:
    """A time in which a device had no trial; or several short ones, with their main cause."""

    device_id: int
    cause: IdleCause
    start_s: float
    end_s: float

    @property
    def duration_s(self) -> float:
        return self.end_s - self.start_s


def idle_within(idle: IdleColumns, start_s: float, end_s: float) -> IdleColumns:
    """The parts of idle times within a span."""
    is_shown = (idle.ended_s > start_s) & (idle.began_s < end_s)
    return IdleColumns(
        device_ids=idle.device_ids[is_shown],
        causes=idle.causes[is_shown],
        began_s=np.maximum(idle.began_s[is_shown], start_s),
        ended_s=np.minimum(idle.ended_s[is_shown], end_s),
    )


def idle_bars(idle: IdleColumns, start_s: float, end_s: float) -> list[IdleBar]:
    """Idle bars for a timeline: bars shorter than three pixels are drawn that long.

    Args:
        idle: Idle times within the span.
        start_s: Left edge, in seconds since the epoch.
        end_s: Right edge.
    """
    cell_s = (end_s - start_s) / MAX_BARS_OF_A_DEVICE
    lengths = idle.ended_s - idle.began_s
    is_long = lengths >= cell_s
    drawn = [
        IdleBar(device_id=device_id, cause=CAUSES[cause], start_s=began_s, end_s=ended_s)
        for device_id, cause, began_s, ended_s in zip(
            idle.device_ids[is_long].tolist(),
            idle.causes[is_long].tolist(),
            idle.began_s[is_long].tolist(),
            idle.ended_s[is_long].tolist(),
            strict=True,
        )
    ]
    if is_long.all():
        return drawn
    is_short = ~is_long
    cells = ((idle.began_s[is_short] - start_s) // cell_s).astype(np.int64)
    keys = np.stack([idle.device_ids[is_short], cells], axis=1)
    places, groups = np.unique(keys, axis=0, return_inverse=True)
    times = np.zeros((len(places), len(CAUSES)))
    np.add.at(times, (groups.reshape(-1), idle.causes[is_short]), lengths[is_short])
    # Within a cell that trials fill for the most part the gap would not be seen in its place.
    is_mostly_idle = times.sum(axis=1) >= cell_s / 2
    return drawn + [
        IdleBar(
            device_id=int(places[at, 0]),
            cause=CAUSES[times[at].argmax()],
            start_s=start_s + float(places[at, 1]) * cell_s,
            end_s=start_s + float(places[at, 1] + 1) * cell_s,
        )
        for at in np.flatnonzero(is_mostly_idle).tolist()
    ]


def with_idle(totals: Sequence[DeviceTotal], idle: IdleColumns) -> list[DeviceTotal]:
    """Totals with the seconds of each cause. Times reported by two dispatchers count once."""
    found = []
    for total in totals:
        own = idle.device_ids == total.device.id
        lengths = np.bincount(
            idle.causes[own], weights=(idle.ended_s - idle.began_s)[own], minlength=len(CAUSES)
        )
        room_s = max(0.0, total.span_s - total.held_s)
        scale = min(1.0, room_s / lengths.sum()) if lengths.sum() else 1.0
        noted = {CAUSES[at]: float(lengths[at]) * scale for at in np.flatnonzero(lengths).tolist()}
        found.append(replace(total, by_cause={**total.by_cause, **noted}))
    return found


def with_use(totals: Sequence[DeviceTotal], bins: Bins) -> list[DeviceTotal]:
    """Totals with the samples of the devices."""
    return [_with_use(total, bins.where(bins.device_ids == total.device.id)) for total in totals]


def _with_use(total: DeviceTotal, bins: Bins) -> DeviceTotal:
    told = ~np.isnan(bins.utilization_pct)
    covered_s = bins.covered_s[told]
    return replace(
        total,
        utilization_pct=float((bins.utilization_pct[told] * covered_s).sum() / covered_s.sum())
        if told.any()
        else None,
        memory_max_bytes=_total(bins.memory_max_bytes, is_sum=False),
        energy_kwh=_total(bins.energy_kwh, is_sum=True),
    )


def _total(figures: np.ndarray[tuple[int], np.dtype[np.float64]], *, is_sum: bool) -> float | None:
    known = figures[~np.isnan(figures)]
    if not len(known):
        return None
    return float(known.sum() if is_sum else known.max())
