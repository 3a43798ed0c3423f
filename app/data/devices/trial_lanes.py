"""When each trial ran, for databases that record no devices: trials that overlap have lanes."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from tuner.app.data.columns import Floats, Numbers
from tuner.app.data.devices.leases import HostDevice
from tuner.app.data.devices.timeline import Bar, Spans, drawable
from tuner.app.data.trials.columns import TrialColumns

#: More rows do not fit a screen.
MAX_LANES = 32
#: A trial still marked as running is drawn up to now only if the study was active within this many
#: seconds: a killed program leaves such trials behind.
_ACTIVE_WITHIN_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialLanes:
    """Bars of trials, and their rows."""

    bars: tuple[Bar, ...]
    lanes: tuple[HostDevice, ...]
    #: Seconds since the epoch.
    start_s: float
    end_s: float
    #: Trials that are left out because more than `MAX_LANES` overlap.
    n_left_out: int


def trial_lanes(trials: TrialColumns, now: datetime) -> TrialLanes | None:
    """None if no trial has a start."""
    rows = trials.where(~np.isnan(trials.started_at_s))
    if not len(rows):
        return None
    rows = rows.where(np.argsort(rows.started_at_s, kind="stable"))
    last_s = float(np.nanmax(np.concatenate([rows.started_at_s, rows.ended_at_s])))
    is_active = now.timestamp() - last_s <= _ACTIVE_WITHIN_S
    open_until_s = max(now.timestamp(), last_s) if is_active else last_s
    ends = np.where(rows.is_finished, rows.ended_at_s, open_until_s)
    ends = np.maximum(ends, rows.started_at_s)
    of_rows = _lanes(rows.started_at_s, ends)
    is_drawn = of_rows < MAX_LANES
    spans = _spans(rows.where(is_drawn), of_rows[is_drawn], ends[is_drawn])
    lanes = [_lane(number) for number in range(int(of_rows[is_drawn].max()) + 1)]
    return TrialLanes(
        bars=tuple(drawable(spans, {each.id: each for each in lanes})),
        lanes=tuple(lanes),
        start_s=float(rows.started_at_s[0]),
        end_s=max(float(ends.max()), float(rows.started_at_s[0]) + 1),
        n_left_out=int((~is_drawn).sum()),
    )


def _lanes(starts: Floats, ends: Floats) -> Numbers:
    """The lowest lane that is free at each start; starts are in order."""
    free: list[int] = []
    taken: list[tuple[float, int]] = []
    found: list[int] = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        while taken and taken[0][0] <= start:
            heapq.heappush(free, heapq.heappop(taken)[1])
        lane = heapq.heappop(free) if free else len(taken)
        heapq.heappush(taken, (end, lane))
        found.append(lane)
    return np.array(found, dtype=np.int64)


def _lane(number: int) -> HostDevice:
    label = f"{number + 1}"
    return HostDevice(id=number, host="", label=label, name="", kind="", number=number)


def _spans(rows: TrialColumns, lanes: Numbers, ends: Floats) -> Spans:
    n = len(rows)
    zeros, nothing = np.zeros(n, dtype=np.int64), np.zeros(n)
    return Spans(
        attempt_ids=rows.ids,
        trial_numbers=rows.numbers,
        attempt_numbers=zeros,
        device_ids=lanes,
        slots=zeros,
        shares=np.ones(n),
        words=rows.words,
        start_s=rows.started_at_s,
        end_s=ends,
        starting_s=nothing,
        clearing_s=nothing,
    )
