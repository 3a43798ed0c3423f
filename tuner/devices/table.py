"""The table of `tuner devices`: each device, its load, its users, and whether `auto` takes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from tuner.devices.cpu_slots.probe import CpuProbe
from tuner.devices.device import Device, DeviceId, DeviceProbe, DeviceStatus
from tuner.devices.locks import DeviceLocks
from tuner.devices.occupancy import holders_text, other_tuner, use_by_others
from tuner.devices.selection import Locks
from tuner.errors import DeviceError


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRow:
    """One device, ready to print. A figure that the device does not give is None."""

    label: str
    id: DeviceId
    name: str
    memory_total_bytes: int | None
    memory_used_bytes: int | None
    utilization_pct: int | None
    #: The NVLink island; None without a known link to another GPU.
    island: int | None
    numa_node: int | None
    #: Its users, or why it cannot be used; empty if it is unused.
    holders: str
    #: Whether `devices: auto` would take it now.
    is_free: bool


@contextmanager
def open_table(environ: Mapping[str, str]) -> Iterator[Callable[[], tuple[DeviceRow, ...]]]:
    """A function that reads this host's devices: its GPUs, or else CPU slots.

    Raises:
        DeviceError: If there is a driver, but it cannot be used.
    """
    from tuner.devices.nvidia.probe import (
        open_nvml,  # 70 ms, and other verbs do not look at devices.
    )

    gpus = open_nvml(environ.get("CUDA_VISIBLE_DEVICES"))
    probe = gpus if gpus is not None and gpus.devices() else CpuProbe()
    locks = DeviceLocks()
    try:
        yield lambda: describe(probe, locks=locks)
    finally:
        if gpus is not None:
            gpus.close()


def describe(
    probe: DeviceProbe, *, own_pids: frozenset[int] = frozenset(), locks: Locks | None = None
) -> tuple[DeviceRow, ...]:
    """One row for each device of a probe. Claims nothing.

    Args:
        probe: Reads the devices.
        own_pids: Processes whose use does not count.
        locks: Knows which devices another tuner has claimed; None to leave this out.
    """
    return tuple(_row(device, probe, own_pids, locks) for device in probe.devices())


def _row(
    device: Device, probe: DeviceProbe, own_pids: frozenset[int], locks: Locks | None
) -> DeviceRow:
    try:
        status = probe.status(device)
    except DeviceError as error:
        lost = DeviceStatus(memory_used_bytes=None, utilization_pct=None)
        return _filled(device, lost, holders=str(error), is_free=False)
    use = use_by_others(status, own_pids=own_pids) or _other_tuner(device, own_pids, locks)
    holders = use or holders_text(status.holders)
    return _filled(device, status, holders=holders, is_free=use is None)


def _other_tuner(device: Device, own_pids: frozenset[int], locks: Locks | None) -> str | None:
    pid = locks.owner_pid(device) if locks else None
    return None if pid is None or pid in own_pids else other_tuner(pid)


def _filled(device: Device, status: DeviceStatus, *, holders: str, is_free: bool) -> DeviceRow:
    return DeviceRow(
        label=device.label,
        id=device.id,
        name=device.name,
        memory_total_bytes=device.memory_bytes,
        memory_used_bytes=status.memory_used_bytes,
        utilization_pct=status.utilization_pct,
        island=device.island,
        numa_node=device.numa_node,
        holders=holders,
        is_free=is_free,
    )
