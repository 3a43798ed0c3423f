"""May one more attempt start on a device that others of ours use? By real memory, not by promise.

What a device has left is not what is free on it now: its attempts may still grow. Each one
keeps what it is expected to need, and a newcomer has to fit beside all of them at their peaks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.devices.allocation.memory_release import unclaimed_bytes
from tuner.devices.allocation.width import WHOLE
from tuner.devices.device import DeviceStatus

#: What a process takes of a GPU beside torch's own allocations: some 500 MiB, by CUDA's version.
CUDA_CONTEXT_BYTES = 512 * 1024**2
_MIN_MARGIN_BYTES = 512 * 1024**2
_MARGIN_SHARE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """A running attempt of ours on the device in question."""

    #: At its peak; None while nothing is known.
    expected_bytes: int | None
    #: Now; None where the device does not tell it (`used_by`).
    used_bytes: int | None


def used_by(status: DeviceStatus, pids: frozenset[int]) -> int | None:
    """Memory of all processes of an attempt together; 0 before it has any.

    Returns:
        None where the device does not tell: it gives no sizes, or no processes, or one that
        cannot be looked up here and may be the attempt's own under another pid (a container).
    """
    own = [holder.memory_bytes for holder in status.holders if holder.pid in pids]
    if own:
        known = [each for each in own if each is not None]
        return sum(known) if len(known) == len(own) else None
    may_be_hidden = not status.holders or any(each.command is None for each in status.holders)
    return None if may_be_hidden else 0


def used_alone(status: DeviceStatus, *, baseline_bytes: int | None) -> int | None:
    """Memory of the only attempt of ours on a device, where `used_by` cannot tell it.

    Args:
        status: The device now.
        baseline_bytes: `unclaimed_bytes` before the attempt's launch.
    """
    now_bytes = unclaimed_bytes(status, own_pids=frozenset())
    if now_bytes is None or baseline_bytes is None:
        return None
    return max(0, now_bytes - baseline_bytes)


def margin_bytes(total_bytes: int) -> int:
    """What is left free on a device for what no figure shows.

    First the driver's reserve, which is in a GPU's total but not in its use: 346 of 24564 MiB
    (netdata issue 15755), about 1 GiB of a B200 (scitix/sichek pull request 113). Then what
    attempts take between two looks at the device, such as the workspaces of libraries.
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

    A neighbour with no expectation may take all there is. Those whose use is not told are
    looked at together: what no known process accounts for is theirs already, and counting
    their expectation on top of it would count them twice.

    Args:
        status: The device now.
        total_bytes: All of its memory.
        neighbours: All running attempts of ours on it.
        baseline_bytes: `unclaimed_bytes` before the first of them started: not their own.

    Returns:
        At least 0; None where the device does not tell its memory (a CPU slot).
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
    """What processes that cannot be seen have taken since the first neighbour's launch."""
    return used_alone(status, baseline_bytes=baseline_bytes) or 0


def promised_bytes(parts: int, total_bytes: int) -> int:
    """Memory that parts of a device stand for.

    They are parts of what is left beside the margin, so that four quarters fit.
    """
    return (total_bytes - margin_bytes(total_bytes)) * parts // WHOLE
