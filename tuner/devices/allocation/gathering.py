"""Which devices are kept free for a wide trial, and until when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.devices.allocation.durations import Durations
from tuner.devices.allocation.pool import DevicePool
from tuner.devices.allocation.remaining import median_until_all_end_s
from tuner.devices.device import Device


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathering:
    """Devices that are kept for the oldest trial that waits."""

    n_devices: int
    #: Until they are all free, in seconds from now, with even odds; None if not known yet.
    left_s: float | None


def gather(reserved: Sequence[Device], pool: DevicePool, durations: Durations) -> Gathering:
    """Describes reserved devices.

    Args:
        reserved: The devices.
        pool: Knows the leases on them.
        durations: Knows the attempts that hold the leases.
    """
    running = durations.running_on(reserved, pool)
    left_s = median_until_all_end_s(running) if durations.are_known else None
    return Gathering(n_devices=len(reserved), left_s=left_s)
