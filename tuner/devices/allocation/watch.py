"""Looks after leased devices: whether their memory is back, and whether they are still there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuner.devices.allocation.memory_release import is_clear
from tuner.devices.device import Device, DeviceId, DeviceKind, DeviceProbe, DeviceStatus
from tuner.errors import DeviceError

Baselines = Mapping[DeviceId, int | None]
"""Memory in use on each GPU before a launch, in bytes; None if it is not reported."""


class DeviceWatch:
    """Reads devices and records lost ones, which are not read again automatically.

    Args:
        probe: Reads a device.
    """

    def __init__(self, probe: DeviceProbe) -> None:
        self._probe = probe
        #: By device, in the driver's words.
        self.lost: dict[DeviceId, str] = {}

    def use(self, probe: DeviceProbe) -> None:
        """From now on devices are read by this one."""
        self._probe = probe

    def is_back(self, device: Device) -> bool:
        """Asks again for a device that was lost."""
        self.lost.pop(device.id, None)
        return self.status(device) is not None

    def status(self, device: Device) -> DeviceStatus | None:
        """The status of a GPU; None if it is lost."""
        if device.id in self.lost:
            return None
        try:
            return self._probe.status(device)
        except DeviceError as error:
            self.lost[device.id] = str(error)
            return None

    def find_unclear(
        self, devices: Sequence[Device], baselines: Baselines, own_pids: frozenset[int]
    ) -> Device | None:
        """The first device that still has memory or processes of an attempt; None if all are clear.

        A lost device counts as clear: a wait would be in vain.
        """
        for device in devices:
            if not self._is_clear(device, baselines.get(device.id), own_pids):
                return device
        return None

    def _is_clear(
        self, device: Device, baseline_bytes: int | None, own_pids: frozenset[int]
    ) -> bool:
        if device.kind is DeviceKind.CPU:
            return True
        status = self.status(device)
        return status is None or is_clear(status, baseline_bytes=baseline_bytes, own_pids=own_pids)
