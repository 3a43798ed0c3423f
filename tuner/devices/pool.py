"""Which device belongs to which attempt, so that no two attempts ever get the same one.

Only the leases are stored. What is free is computed from them, so the two cannot disagree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from types import MappingProxyType

from tuner.devices.device import Device, DeviceId


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The devices that one attempt holds, from before its launch until they are truly free."""

    #: Counts up within one pool and is never used again.
    number: int
    attempt_id: str
    devices: tuple[Device, ...]


class DevicePool:
    """Hands out whole devices of one host.

    Args:
        devices: All devices to hand out, the preferred ones first.
    """

    def __init__(self, devices: Sequence[Device]) -> None:
        self._devices = {device.id: device for device in devices}
        if len(self._devices) != len(devices):
            raise ValueError("The same device was given to the pool twice.")
        self._leases: dict[DeviceId, Lease] = {}
        self._numbers = count(1)

    @property
    def devices(self) -> tuple[Device, ...]:
        """All devices, free or leased, in the order they are handed out."""
        return tuple(self._devices.values())

    @property
    def free(self) -> tuple[Device, ...]:
        return tuple(device for device in self.devices if device.id not in self._leases)

    @property
    def leased(self) -> tuple[Device, ...]:
        return tuple(device for device in self.devices if device.id in self._leases)

    @property
    def leases(self) -> Mapping[DeviceId, Lease]:
        """Each leased device with its lease; read only."""
        return MappingProxyType(self._leases)

    def lease(self, n_devices: int, attempt_id: str) -> Lease | None:
        """Takes exactly `n_devices`, or nothing and returns None when fewer are free."""
        if n_devices < 1:
            raise ValueError(f"A lease needs at least 1 device, not {n_devices}.")
        taken = self.free[:n_devices]
        if len(taken) < n_devices:
            return None
        lease = Lease(number=next(self._numbers), attempt_id=attempt_id, devices=taken)
        self._leases |= {device.id: lease for device in taken}
        return lease

    def release(self, lease: Lease) -> None:
        """Gives the devices of a lease back. The caller has seen that they are clear.

        Raises:
            ValueError: If the lease is not held here (a bug: it was released twice).
        """
        if any(self._leases.get(device.id) != lease for device in lease.devices):
            raise ValueError(f"Lease {lease.number} of attempt {lease.attempt_id} is not held.")
        for device in lease.devices:
            del self._leases[device.id]

    def withdraw(self, device: Device) -> None:
        """Takes a device out for good, free or leased; a lease on it can still be released."""
        del self._devices[device.id]
