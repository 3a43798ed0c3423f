"""Detects when the memory of the last attempt is free, so that the next one may start.

A killed process is gone before the driver has freed its memory. A trial that starts in between runs
out of memory without being the cause.
"""

from __future__ import annotations

from tuner.devices.device import DeviceStatus

#: The driver's own use of a GPU moves by some tens of MiB, and less than this stops no trial.
MARGIN_BYTES = 256 * 1024**2


def unclaimed_bytes(status: DeviceStatus, *, own_pids: frozenset[int]) -> int | None:
    """Memory in use, without the memory of known processes of others.

    Before launch this is the baseline of `is_clear`. A neighbour on the same GPU may grow and
    shrink, and must neither delay the release of the device nor hide an attempt's remaining memory.
    A process that cannot be looked up (command is None) is not counted as a neighbour: in a
    container it may be this dispatcher's own under another pid.

    Returns:
        Bytes; None if the device does not report its memory or that of a neighbour.
    """
    if status.memory_used_bytes is None:
        return None
    claimed_bytes = 0
    for holder in status.holders:
        if holder.pid in own_pids or holder.command is None:
            continue
        if holder.memory_bytes is None:
            return None
        claimed_bytes += holder.memory_bytes
    return max(0, status.memory_used_bytes - claimed_bytes)


def is_clear(status: DeviceStatus, *, baseline_bytes: int | None, own_pids: frozenset[int]) -> bool:
    """Whether nothing of an attempt is left on a device. A CPU slot is always clear.

    Args:
        status: The device now.
        baseline_bytes: `unclaimed_bytes` before the attempt's launch.
        own_pids: Pids of all processes of the attempt.
    """
    if any(holder.pid in own_pids for holder in status.holders):
        return False
    left_bytes = unclaimed_bytes(status, own_pids=own_pids)
    if left_bytes is None or baseline_bytes is None:
        return True
    return left_bytes <= baseline_bytes + MARGIN_BYTES
