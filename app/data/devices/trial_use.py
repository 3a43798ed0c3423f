"""Activity of one trial's devices while it held them, over all its attempts.

Between two attempts the trial may wait for hours: only the time of attempts is shown. Samples are
of whole devices; an attempt's own share is in its record (`tuner.queries.usage`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import sqlalchemy as sa

from tuner.app.data.columns import Floats
from tuner.app.data.devices.leases import HostDevice, Leases
from tuner.app.data.devices.samples import Bins, read_bins, window_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """An attempt of the trial, and its devices."""

    number: int
    dispatcher_id: int
    device_ids: frozenset[int]
    #: The least that it has of any one device.
    share: float
    #: Seconds since the epoch.
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeviceUse:
    """One device, with a row for each column of time; NaN if unknown."""

    device: HostDevice
    #: Seconds of the trial's attempts until then.
    elapsed_s: Floats
    #: Seconds since the epoch.
    at_s: Floats
    utilization_pct: Floats
    memory_bytes: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrialUse:
    """Data of one trial's chart."""

    #: Devices that were sampled.
    devices: tuple[DeviceUse, ...]
    #: Seconds of attempts before each attempt, by its number.
    begins_s: Mapping[int, float]
    length_s: float
    #: Width of a column of time: each number is a mean over this many seconds.
    width_s: int
    is_shared: bool


def held_by(leases: Leases, trial: int) -> list[Held]:
    """The attempts of a trial that had a device, in order.

    Args:
        leases: Leases of the trial's study.
        trial: Its number.
    """
    columns, ends_s = leases.columns, leases.ends_s()
    own = (columns.trial_numbers == trial) & ~np.isnan(ends_s)
    found = []
    for attempt in np.unique(columns.attempt_numbers[own]).tolist():
        at = np.flatnonzero(own & (columns.attempt_numbers == attempt))
        found.append(
            Held(
                number=attempt,
                dispatcher_id=int(columns.dispatcher_ids[at[0]]),
                device_ids=frozenset(columns.device_ids[at].tolist()),
                share=float(columns.shares[at].min()),
                start_s=float(columns.started_at_s[at].min()),
                end_s=float(ends_s[at].max()),
            )
        )
    return found


def read_trial_use(
    connection: sa.Connection,
    held: Sequence[Held],
    devices: Mapping[int, HostDevice],
    now: datetime,
) -> TrialUse:
    """Reads the usage of a trial's devices.

    Args:
        connection: To a database with the tuner's tables.
        held: At least one attempt.
        devices: All devices.
        now: The current time; old samples are per minute.
    """
    length_s = sum(each.end_s - each.start_s for each in held)
    first_s = held[0].start_s
    width_s = window_of(first_s, first_s + length_s, now.timestamp()).width_s
    bins = [_bins_of(connection, each, width_s) for each in held]
    return TrialUse(
        devices=tuple(_uses(held, bins, devices, width_s)),
        begins_s=_begins_s(held),
        length_s=length_s,
        width_s=width_s,
        is_shared=any(each.share < 1 for each in held),
    )


def _bins_of(connection: sa.Connection, held: Held, width_s: int) -> Bins:
    """Bins by time; of a device that others had before, only those that overlap the attempt."""
    begin_s = int(held.start_s // width_s) * width_s
    bins = read_bins(connection, [held.dispatcher_id], begin_s, int(-(-held.end_s // 1)), width_s)
    bins = bins.where(np.isin(bins.device_ids, list(held.device_ids)))
    return bins.where(np.argsort(bins.starts_s, kind="stable"))


def _begins_s(held: Sequence[Held]) -> dict[int, float]:
    found, elapsed_s = {}, 0.0
    for each in held:
        found[each.number] = elapsed_s
        elapsed_s += each.end_s - each.start_s
    return found


def _uses(
    held: Sequence[Held], bins: Sequence[Bins], devices: Mapping[int, HostDevice], width_s: int
) -> Iterator[DeviceUse]:
    seen = {device_id for each in bins for device_id in each.device_ids.tolist()}
    begins_s = _begins_s(held)
    for device in devices.values():
        if device.id not in seen:
            continue
        rows = [
            _rows(each, part.where(part.device_ids == device.id), begins_s[each.number], width_s)
            for each, part in zip(held, bins, strict=True)
        ]
        elapsed_s, at_s, utilization_pct, memory_bytes = np.concatenate(rows, axis=1)
        yield DeviceUse(
            device=device,
            elapsed_s=elapsed_s,
            at_s=at_s,
            utilization_pct=utilization_pct,
            memory_bytes=memory_bytes,
        )


def _rows(held: Held, bins: Bins, begin_s: float, width_s: int) -> Floats:
    """[4, columns + 1]: elapsed and absolute seconds, %, bytes; NaN at the end parts attempts."""
    at_s = (bins.starts_s + width_s / 2).clip(held.start_s, held.end_s)
    rows = np.full((4, len(at_s) + 1), np.nan)
    rows[0, -1], rows[1, -1] = held.end_s - held.start_s + begin_s, held.end_s
    rows[:, :-1] = (
        at_s - held.start_s + begin_s,
        at_s,
        bins.utilization_pct,
        bins.memory_bytes,
    )
    return rows
