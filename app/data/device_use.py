"""What each device did: bars for a timeline, and totals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from app.data.lease_columns import HostDevice, Leases
from app.data.words import ALL_WORDS, RUNNING

#: A timeline is some 1,200 pixels wide: what is shorter than two is drawn with its neighbours.
_MAX_BARS_OF_A_DEVICE = 600
#: A lease that nobody gave back, of a dispatcher that is dead.
ABANDONED = "abandoned"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """An attempt on one device; or several short ones that a timeline can't show apart."""

    device_id: int
    #: From 0, where attempts share the device.
    slot: int
    share: float
    start_s: float
    end_s: float
    word: str
    trial: int
    attempt: int
    #: Labels of all devices that the attempt holds.
    devices: tuple[str, ...]
    n_attempts: int = 1

    @property
    def duration_s(self) -> float:
        return self.end_s - self.start_s

    @property
    def device_s(self) -> float:
        return self.duration_s * self.share


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTotal:
    """What a device did within a span of time."""

    device: HostDevice
    span_s: float
    #: Device-seconds: of a share of a device only that part.
    busy_s: float
    by_word: Mapping[str, float]
    n_attempts: int

    @property
    def idle_s(self) -> float:
        return max(0.0, self.span_s - self.busy_s)


def bars_of(leases: Leases) -> list[Bar]:
    """A bar for each lease, in the order of their beginnings."""
    columns, ends = leases.columns, leases.ends_s()
    labels: dict[int, list[str]] = {}
    for attempt, device in zip(
        columns.attempt_ids.tolist(), columns.device_ids.tolist(), strict=True
    ):
        labels.setdefault(attempt, []).append(leases.devices[device].label)
    living = np.isin(columns.dispatcher_ids, list(leases.living))
    bars = [
        Bar(
            device_id=int(columns.device_ids[at]),
            slot=int(columns.slots[at]),
            share=float(columns.shares[at]),
            start_s=float(columns.started_at_s[at]),
            end_s=float(ends[at]),
            word=_word(int(columns.words[at]), is_alive=bool(living[at])),
            trial=int(columns.trial_numbers[at]),
            attempt=int(columns.attempt_numbers[at]),
            devices=tuple(labels[int(columns.attempt_ids[at])]),
        )
        for at in np.argsort(columns.started_at_s, kind="stable").tolist()
    ]
    return [bar for bar in bars if not np.isnan(bar.end_s)]


def _word(code: int, *, is_alive: bool) -> str:
    return ABANDONED if code == RUNNING and not is_alive else ALL_WORDS[code]


def within(bars: Sequence[Bar], start_s: float, end_s: float) -> list[Bar]:
    """The parts of bars that lie in a span."""
    return [
        replace(bar, start_s=max(bar.start_s, start_s), end_s=min(bar.end_s, end_s))
        for bar in bars
        if bar.end_s > start_s and bar.start_s < end_s
    ]


def drawable(bars: Sequence[Bar]) -> list[Bar]:
    """As many as a timeline can show: neighbours shorter than two pixels become one bar.

    Such a bar has the outcome that took most of its time.
    """
    if not bars:
        return []
    start_s, end_s = min(bar.start_s for bar in bars), max(bar.end_s for bar in bars)
    shortest_s = (end_s - start_s) / _MAX_BARS_OF_A_DEVICE
    lanes: dict[tuple[int, int], list[Bar]] = {}
    for bar in sorted(bars, key=lambda bar: bar.start_s):
        lanes.setdefault((bar.device_id, bar.slot), []).append(bar)
    return [bar for lane in lanes.values() for bar in _merged(lane, shortest_s)]


def _merged(lane: Sequence[Bar], shortest_s: float) -> list[Bar]:
    merged: list[Bar] = []
    time_by_word: dict[str, float] = {}
    for bar in lane:
        last = merged[-1] if merged else None
        if last is None or bar.end_s - last.start_s > shortest_s:
            merged.append(bar)
            time_by_word = {bar.word: bar.duration_s}
            continue
        time_by_word[bar.word] = time_by_word.get(bar.word, 0.0) + bar.duration_s
        word = max(time_by_word, key=lambda each: time_by_word[each])
        n = last.n_attempts + 1
        merged[-1] = replace(last, end_s=max(last.end_s, bar.end_s), word=word, n_attempts=n)
    return merged


def totals(
    bars: Sequence[Bar], devices: Mapping[int, HostDevice], span_s: float
) -> list[DeviceTotal]:
    """Of each device that was ever used, in the order of the devices."""
    found = []
    for device in devices.values():
        own = [bar for bar in bars if bar.device_id == device.id]
        if not own:
            continue
        by_word: dict[str, float] = {}
        for bar in own:
            by_word[bar.word] = by_word.get(bar.word, 0.0) + bar.device_s
        found.append(
            DeviceTotal(
                device=device,
                span_s=span_s,
                busy_s=sum(by_word.values()),
                by_word=by_word,
                n_attempts=sum(bar.n_attempts for bar in own),
            )
        )
    return found


def by_outcome(all_totals: Sequence[DeviceTotal]) -> dict[str, float]:
    """Device-seconds, the most first."""
    found: dict[str, float] = {}
    for total in all_totals:
        for word, spent_s in total.by_word.items():
            found[word] = found.get(word, 0.0) + spent_s
    return dict(sorted(found.items(), key=lambda item: -item[1]))
