"""CPU slots, on which trials run if there is no GPU or none is wanted.

A slot is a share of the cores that this process may use. In a container or a Slurm allocation these
are far fewer than the machine has.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from tuner.devices.device import Device, DeviceId, DeviceKind, DeviceStatus
from tuner.errors import DeviceError

#: More slots by default would rather fill the memory of a big machine than help.
MAX_DEFAULT_SLOTS = 8


class CpuProbe:
    """The CPU slots of this host.

    Args:
        n_slots: Number of slots; None for one per core, at most eight.
        n_cores: Cores to share; None for all that this process may use.
    """

    def __init__(self, n_slots: int | None = None, *, n_cores: int | None = None) -> None:
        cores = usable_cores() if n_cores is None else n_cores
        slots = min(cores, MAX_DEFAULT_SLOTS) if n_slots is None else n_slots
        if slots < 1:
            raise ValueError(f"There must be at least 1 CPU slot, not {slots}.")
        self._devices = tuple(_slot(number, max(1, cores // slots)) for number in range(slots))

    def devices(self) -> tuple[Device, ...]:
        return self._devices

    def status(self, device: Device) -> DeviceStatus:
        """A slot has no status: it is only a share that the tuner itself leases."""
        if device not in self._devices:
            raise DeviceError(f"{device.label} is not one of the {len(self._devices)} CPU slots.")
        return DeviceStatus(memory_used_bytes=None, utilization_pct=None)

    def close(self) -> None:
        """Nothing to let go."""


class DividedSlots(CpuProbe):
    """All CPU slots of a machine that divides them among its users; chosen like GPUs."""

    cuda_visible_devices: str | None = None
    problems: tuple[str, ...] = ()


def usable_cores(
    cgroup_root: Path = Path("/sys/fs/cgroup"), own_cgroups: Path = Path("/proc/self/cgroup")
) -> int:
    """Whole cores that this process may use: the affinity mask cut by the cgroup's quota."""
    cores = _affinity_cores()
    quota_cores = _quota_cores(cgroup_root, own_cgroups)
    return cores if quota_cores is None else max(1, min(cores, int(quota_cores)))


def _slot(number: int, n_threads: int) -> Device:
    return Device(
        id=DeviceId(f"cpu:{number}"),
        kind=DeviceKind.CPU,
        name="CPU",
        index=number,
        n_threads=n_threads,
    )


def _affinity_cores() -> int:
    # macOS has no affinity masks.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _quota_cores(root: Path, own_cgroups: Path) -> float | None:
    """The tightest quota of the process's own group and all groups above it."""
    quotas = [_quota_of(group) for group in _own_groups(root, _lines(own_cgroups))]
    return min((quota for quota in quotas if quota is not None), default=None)


def _own_groups(root: Path, memberships: list[str]) -> Iterator[Path]:
    """Folders whose quota applies to this process, for both cgroup versions.

    A line of `/proc/self/cgroup` is `number:controllers:path`, without controllers in version 2
    (cgroups(7)). In a container the path may not exist under the mount; the mount's root is then
    the container's own group.
    """
    for line in memberships:
        _, controllers, path = line.split(":", 2)
        if controllers == "" or "cpu" in controllers.split(","):
            relative = PurePosixPath(path.lstrip("/"))
            for mount in (root / controllers, root / "cpu"):
                yield from (mount / group for group in (relative, *relative.parents))


def _quota_of(group: Path) -> float | None:
    version_2 = " ".join(_lines(group / "cpu.max"))
    if version_2:
        return _ratio(*version_2.split())
    quota_us, period_us = (
        " ".join(_lines(group / name)) for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    )
    return _ratio(quota_us, period_us)


def _ratio(quota_us: str, period_us: str) -> float | None:
    """Cores in a quota; `max` (version 2) and `-1` (version 1) are no quota."""
    return int(quota_us) / int(period_us) if quota_us.isdecimal() else None


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []
