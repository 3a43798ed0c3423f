"""Activity of each device: bars for a timeline, and totals."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from tuner.app.data.columns import Columns, Floats, Numbers
from tuner.app.data.devices.leases import HostDevice, Leases
from tuner.app.data.outcome_words import ABANDONED_CODE, ALL_WORDS, RUNNING
from tuner.devices.idle_causes import IdleCause

#: A timeline is some 1,200 pixels wide: bars shorter than three pixels are merged with neighbours.
MAX_BARS_OF_A_DEVICE = 400
K = TypeVar("K")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spans(Columns):
    """Held times of attempts within a time span, as columns, in order."""

    attempt_ids: Numbers
    trial_numbers: Numbers
    attempt_numbers: Numbers
    device_ids: Numbers
    #: From 0, if attempts share the device.
    slots: Numbers
    shares: Floats
    #: Places in the words of outcomes.
    words: Numbers
    start_s: Floats
    end_s: Floats
    #: Seconds before the attempt's processes sent hello, and until its memory was free.
    starting_s: Floats
    clearing_s: Floats

    def __len__(self) -> int:
        return len(self.attempt_ids)

    @property
    def device_s(self) -> Floats:
        return (self.end_s - self.start_s) * self.shares


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """An attempt on one device, or several short ones that a timeline can't separate."""

    device_id: int
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


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTotal:
    """Activity of a device within a time span."""

    device: HostDevice
    span_s: float
    #: Device-seconds of attempts, by outcome: of a share of a device only that part.
    by_word: Mapping[str, float]
    n_attempts: int
    #: Seconds without a computing trial, by recorded cause.
    by_cause: Mapping[IdleCause, float] = field(default_factory=dict)
    #: Mean while it was sampled; None if it was not, or does not report it.
    utilization_pct: float | None = None
    memory_max_bytes: float | None = None
    energy_kwh: float | None = None

    @property
    def held_s(self) -> float:
        """Device-seconds of all attempts."""
        return sum(self.by_word.values())

    @property
    def computing_s(self) -> float:
        """Without the time in which an attempt had it and was starting, or already over."""
        wasted = (IdleCause.STARTING, IdleCause.CLEARING)
        return max(0.0, self.held_s - sum(self.by_cause.get(each, 0.0) for each in wasted))

    @property
    def unattended_s(self) -> float:
        """In which no dispatcher had it, as far as is known."""
        return max(0.0, self.span_s - self.computing_s - sum(self.by_cause.values()))


def spans_of(leases: Leases, start_s: float = -math.inf, end_s: float = math.inf) -> Spans:
    """The part of each lease within a time span."""
    columns, ends = leases.columns, leases.ends_s()
    begins = columns.started_at_s
    is_shown = ~np.isnan(ends) & (ends > start_s) & (begins < end_s)
    at = np.flatnonzero(is_shown)
    at = at[np.argsort(begins[at], kind="stable")]
    is_alive = np.isin(columns.dispatcher_ids[at], list(leases.living))
    words = np.where((columns.words[at] == RUNNING) & ~is_alive, ABANDONED_CODE, columns.words[at])
    # Without a hello, an attempt is starting until now, or until its end.
    hello = np.fmin(columns.hello_at_s[at], ends[at])
    hello = np.where(np.isnan(columns.hello_at_s[at]), ends[at], hello)
    over = np.where(np.isnan(columns.over_at_s[at]), ends[at], columns.over_at_s[at])
    hello = np.minimum(hello, np.maximum(over, begins[at]))
    return Spans(
        attempt_ids=columns.attempt_ids[at],
        trial_numbers=columns.trial_numbers[at],
        attempt_numbers=columns.attempt_numbers[at],
        device_ids=columns.device_ids[at],
        slots=columns.slots[at],
        shares=columns.shares[at],
        words=words.astype(np.int64),
        start_s=np.maximum(begins[at], start_s),
        end_s=np.minimum(ends[at], end_s),
        starting_s=_length_within(begins[at], hello, start_s, end_s),
        clearing_s=_length_within(np.minimum(over, ends[at]), ends[at], start_s, end_s),
    )


def _length_within(begins: Floats, ends: Floats, start_s: float, end_s: float) -> Floats:
    lengths: Floats = np.minimum(ends, end_s) - np.maximum(begins, start_s)
    return lengths.clip(min=0.0)


def bars(spans: Spans, devices: Mapping[int, HostDevice]) -> list[Bar]:
    """A bar for each span, in their order."""
    labels: dict[int, list[str]] = {}
    for attempt, device in zip(spans.attempt_ids.tolist(), spans.device_ids.tolist(), strict=True):
        labels.setdefault(attempt, []).append(devices[device].label)
    return [
        _bar(spans, at, tuple(labels[attempt]))
        for at, attempt in enumerate(spans.attempt_ids.tolist())
    ]


def _bar(spans: Spans, at: int, devices: tuple[str, ...]) -> Bar:
    return Bar(
        device_id=int(spans.device_ids[at]),
        slot=int(spans.slots[at]),
        share=float(spans.shares[at]),
        start_s=float(spans.start_s[at]),
        end_s=float(spans.end_s[at]),
        word=ALL_WORDS[spans.words[at]],
        trial=int(spans.trial_numbers[at]),
        attempt=int(spans.attempt_numbers[at]),
        devices=devices,
    )


def drawable(spans: Spans, devices: Mapping[int, HostDevice]) -> list[Bar]:
    """As many bars as a timeline can show: neighbours shorter than three pixels become one.

    Such a bar has the outcome that took most of its time.
    """
    if not len(spans):
        return []
    begin_s = float(spans.start_s.min())
    cell_s = (float(spans.end_s.max()) - begin_s) / MAX_BARS_OF_A_DEVICE
    is_short = spans.end_s - spans.start_s < cell_s
    drawn = bars(spans.where(~is_short), devices)
    return drawn + _merged(spans.where(is_short), devices, begin_s, cell_s)


def _merged(
    spans: Spans, devices: Mapping[int, HostDevice], begin_s: float, cell_s: float
) -> list[Bar]:
    if not len(spans):
        return []
    cells = ((spans.start_s - begin_s) // cell_s).astype(np.int64)
    keys = np.stack([spans.device_ids, spans.slots, cells], axis=1)
    _, firsts, groups = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    groups = groups.reshape(-1)
    n_groups = len(firsts)
    counts = np.bincount(groups, minlength=n_groups)
    ends = np.full(n_groups, -np.inf)
    np.maximum.at(ends, groups, spans.end_s)
    times = np.zeros((n_groups, len(ALL_WORDS)))
    np.add.at(times, (groups, spans.words), spans.end_s - spans.start_s)
    words = times.argmax(axis=1)
    # `unique` gives the first of each group, and spans are in the order of their beginnings.
    return [
        Bar(
            device_id=int(spans.device_ids[first]),
            slot=int(spans.slots[first]),
            share=float(spans.shares[first]),
            start_s=float(spans.start_s[first]),
            end_s=float(ends[group]),
            word=ALL_WORDS[words[group]],
            trial=int(spans.trial_numbers[first]),
            attempt=int(spans.attempt_numbers[first]),
            devices=(devices[int(spans.device_ids[first])].label,),
            n_attempts=int(counts[group]),
        )
        for group, first in enumerate(firsts.tolist())
    ]


def totals(
    spans: Spans,
    devices: Mapping[int, HostDevice],
    span_s: float,
    *,
    seen: Collection[int] = (),
) -> list[DeviceTotal]:
    """Totals for each device that an attempt held within a span, in the order of devices.

    Args:
        spans: Held times of attempts.
        devices: All devices.
        span_s: Length of the span.
        seen: Devices that are always included.
    """
    found = []
    for device in devices.values():
        own = spans.where(spans.device_ids == device.id)
        if not len(own) and device.id not in seen:
            continue
        by_word = np.bincount(own.words, weights=own.device_s, minlength=len(ALL_WORDS))
        wasted = {
            IdleCause.STARTING: float((own.starting_s * own.shares).sum()),
            IdleCause.CLEARING: float((own.clearing_s * own.shares).sum()),
        }
        found.append(
            DeviceTotal(
                device=device,
                span_s=span_s,
                by_word={w: float(s) for w, s in zip(ALL_WORDS, by_word, strict=True) if s > 0},
                n_attempts=len(own),
                by_cause={cause: s for cause, s in wasted.items() if s > 0},
            )
        )
    return found


def by_outcome(all_totals: Sequence[DeviceTotal]) -> dict[str, float]:
    """Device-seconds, the most first."""
    return _sums([total.by_word for total in all_totals])


def by_cause(all_totals: Sequence[DeviceTotal]) -> dict[IdleCause, float]:
    """Seconds in which no trial computed, the most first."""
    return _sums([total.by_cause for total in all_totals])


def _sums(parts: Sequence[Mapping[K, float]]) -> dict[K, float]:
    found: dict[K, float] = {}
    for part in parts:
        for key, spent_s in part.items():
            found[key] = found.get(key, 0.0) + spent_s
    return dict(sorted(found.items(), key=lambda item: -item[1]))
