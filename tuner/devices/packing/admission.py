"""Decides by measured memory whether one more attempt may start on a shared device.

The room on a device is less than its free memory: its attempts may still grow. Each keeps its
expected peak, and a new attempt must fit in addition to all of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.devices.allocation.memory_release import unclaimed_bytes
from tuner.devices.allocation.width import WHOLE
from tuner.devices.device import DeviceStatus

#: GPU memory of a process besides torch's own allocations, at most and at least. On an H200 with
#: CUDA 13: 610 MiB of the context, up to 690 MiB with the kernels of cuBLAS, cuDNN and attention.
#: It is less on GPUs with fewer multiprocessors. NCCL, some 550 MiB more, is not in it.
CUDA_CONTEXT_BYTES = 768 * 1024**2
LEAST_CONTEXT_BYTES = 512 * 1024**2
_MIN_MARGIN_BYTES = 512 * 1024**2
_MARGIN_SHARE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """An own running attempt on the device."""

    #: Expected peak; None if unknown.
    expected_bytes: int | None
    #: Current use; None if the device does not report it (`used_by`).
    used_bytes: int | None


def used_by(status: DeviceStatus, pids: frozenset[int]) -> int | None:
    """Memory of all processes of an attempt together; 0 before it has any.

    Returns:
        None if the device does not report it: it gives no sizes, or no processes, or one that
        cannot be looked up here and may be the attempt's own under another pid (a container).
    """
    own = [holder.memory_bytes for holder in status.holders if holder.pid in pids]
    if own:
        known = [each for each in own if each is not None]
        return sum(known) if len(known) == len(own) else None
    may_be_hidden = not status.holders or any(each.command is None for each in status.holders)
    return None if may_be_hidden else 0


def used_alone(status: DeviceStatus, *, baseline_bytes: int | None) -> int | None:
    """Memory of the only own attempt on a device, if `used_by` does not know it.

    Args:
        status: The device now.
        baseline_bytes: `unclaimed_bytes` before the attempt's launch.
    """
    now_bytes = unclaimed_bytes(status, own_pids=frozenset())
    if now_bytes is None or baseline_bytes is None:
        return None
    return max(0, now_bytes - baseline_bytes)


def margin_bytes(total_bytes: int) -> int:
    """Memory kept free on a device for unreported use.

    First the driver's reserve, which is in a GPU's total but not in its use: 346 of 24564 MiB
    (netdata issue 15755), about 1 GiB of a B200 (scitix/sichek pull request 113). Then allocations
    between two readings of the device, such as the workspaces of libraries.
    """
    return max(_MIN_MARGIN_BYTES, int(total_bytes * _MARGIN_SHARE))


def room_bytes(
    status: DeviceStatus,
    total_bytes: int | None,
    neighbours: Sequence[Neighbour],
    *,
    baseline_bytes: int | None = 0,
) -> int | None:
    """Memory that is free now and that no neighbour is expected to take.

    A neighbour without an expectation may take everything. Neighbours with unknown use are added
    up: memory that no known process accounts for is already theirs, and adding their full
    expectation to it would count it twice.

    Args:
        status: The device now.
        total_bytes: All of its memory.
        neighbours: All own running attempts on it.
        baseline_bytes: `unclaimed_bytes` before the first of them started, which is not theirs.

    Returns:
        At least 0; None if the device does not report its memory (a CPU slot).
    """
    if total_bytes is None or status.memory_used_bytes is None:
        return None
    if any(each.expected_bytes is None for each in neighbours):
        return 0
    growth_bytes = _growth_of_known(neighbours) + _growth_of_hidden(
        neighbours, _hidden_bytes(status, baseline_bytes)
    )
    return max(0, total_bytes - status.memory_used_bytes - growth_bytes)


def fits(need_bytes: int, left_bytes: int, total_bytes: int) -> bool:
    """Whether an attempt that needs so much at its peak fits into the room with a margin."""
    return need_bytes + margin_bytes(total_bytes) <= left_bytes


def _growth_of_known(neighbours: Sequence[Neighbour]) -> int:
    return sum(
        max(0, (each.expected_bytes or 0) - each.used_bytes)
        for each in neighbours
        if each.used_bytes is not None
    )


def _growth_of_hidden(neighbours: Sequence[Neighbour], hidden_bytes: int) -> int:
    expected_bytes = sum(each.expected_bytes or 0 for each in neighbours if each.used_bytes is None)
    return max(0, expected_bytes - hidden_bytes)


def _hidden_bytes(status: DeviceStatus, baseline_bytes: int | None) -> int:
    """Memory of invisible processes since the first neighbour's launch."""
    return used_alone(status, baseline_bytes=baseline_bytes) or 0


def promised_bytes(parts: int, total_bytes: int) -> int:
    """Memory that parts of a device reserve.

    They are parts of the total less the margin, so that four quarters fit.
    """
    return (total_bytes - margin_bytes(total_bytes)) * parts // WHOLE
