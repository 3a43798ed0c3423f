"""Shares a machine with other users: releases GPUs that they take, takes GPUs that they free."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import psutil

from tuner.devices.device import Device, DeviceId, DeviceKind, DeviceProbe
from tuner.devices.occupancy import other_tuner, use_by_others
from tuner.devices.selection import Locks
from tuner.errors import DeviceError


def own_process_tree() -> frozenset[int]:
    """The pids of this process and of all that descends from it."""
    own = psutil.Process()
    return frozenset({own.pid, *(child.pid for child in own.children(recursive=True))})


class Standby:
    """GPUs that a study may use but others use now.

    Args:
        probe: Reads them.
        locks: Claims them against other tuners.
        max_devices: Maximum number of devices of the study; None for no limit.
        minds_others: Whether devices in use by foreign processes are left to them.
        own_pids: Processes whose use does not count. Called only if there is a use.
    """

    def __init__(
        self,
        probe: DeviceProbe,
        locks: Locks,
        *,
        max_devices: int | None = None,
        minds_others: bool = True,
        own_pids: Callable[[], frozenset[int]] = own_process_tree,
    ) -> None:
        self._probe = probe
        self._locks = locks
        self._max_devices = max_devices
        self._minds_others = minds_others
        self._own_pids = own_pids
        self._devices: dict[DeviceId, Device] = {}
        self._reasons: dict[DeviceId, str] = {}

    @property
    def devices(self) -> tuple[Device, ...]:
        """In index order."""
        return tuple(sorted(self._devices.values(), key=lambda one: (one.index, one.id)))

    @property
    def reasons(self) -> Mapping[DeviceId, str]:
        """The user of each, as of the last check: `python (pid 7, user ann) uses it`."""
        return MappingProxyType(self._reasons)

    def add(self, device: Device, reason: str) -> None:
        """Moves a device to standby, and releases the study's claim on it."""
        self._devices[device.id] = device
        self._reasons[device.id] = reason
        # Kept, it would shut out other tuners also while this study has all that it may have.
        self._locks.release(device)

    def is_taken(self, device: Device) -> str | None:
        """The other user of a device of the study; None if there is none.

        Call it only for a device without a lease whose memory is free: in a container the memory of
        an own trial cannot be distinguished from that of a process outside. A device that cannot be
        read does not count as taken: `DeviceWatch` handles lost ones.
        """
        if device.kind is DeviceKind.CPU:
            return None
        try:
            return self._use(device)
        except DeviceError:
            return None

    def look(self, n_held: int) -> tuple[Device, ...]:
        """Claims devices that have become free and removes them from standby.

        Args:
            n_held: Number of devices that the study has now.
        """
        taken: list[Device] = []
        for device in self.devices:
            if self._max_devices is not None and n_held + len(taken) >= self._max_devices:
                break
            reason = self._against(device)
            if reason is None:
                taken.append(device)
                del self._devices[device.id], self._reasons[device.id]
            else:
                self._reasons[device.id] = reason
        return tuple(taken)

    def _against(self, device: Device) -> str | None:
        """Why a device cannot be had now; None once it is claimed."""
        try:
            if use := self._use(device):
                return use
            is_claimed = self._locks.acquire(device)
        except DeviceError as error:
            return str(error)
        return None if is_claimed else other_tuner(self._locks.owner_pid(device))

    def _use(self, device: Device) -> str | None:
        status = self._probe.status(device)
        if not self._minds_others or use_by_others(status) is None:
            return None
        return use_by_others(status, own_pids=self._own_pids())
