"""Leases of devices: no two attempts ever get the same part of a device.

Only the leases are stored. Free parts follow from them and are cached per device, since one
decision among a thousand must not read all leases.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import count, islice

from tuner.devices.allocation.placement import choose_devices, choose_shared, index_order
from tuner.devices.allocation.width import WHOLE, Devices, Share, Width, n_devices_of, parts_on
from tuner.devices.device import Device, DeviceId


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The devices of one attempt, from before its launch until they are free."""

    #: Counts up within one pool and is never used again.
    number: int
    attempt_id: str
    #: In index order.
    devices: tuple[Device, ...]
    #: Parts of each of its devices.
    parts: int = WHOLE

    @property
    def is_whole(self) -> bool:
        return self.parts == WHOLE

    @property
    def n_devices_held(self) -> float:
        """2 for two devices, 0.25 for a quarter of one: device-hours per hour."""
        return len(self.devices) * self.parts / WHOLE


def always(device: Device) -> bool:
    """Any device may be used."""
    return True


class DevicePool:
    """Leases devices, and parts of them.

    A device is free, leased, or set aside (possibly with leases on it).

    Args:
        devices: All devices. More may join later.

    Raises:
        ValueError: If the same device is given twice.
    """

    def __init__(self, devices: Sequence[Device]) -> None:
        self._devices: dict[DeviceId, Device] = {}
        self._aside: set[DeviceId] = set()
        self._leases: dict[int, Lease] = {}
        self._numbers = count(1)
        # These follow from the above.
        self._in_order: list[Device] = []
        self._free: list[Device] = []
        self._lease_numbers: dict[DeviceId, list[int]] = {}
        self._rooms: dict[DeviceId, int] = {}
        for device in devices:
            self.add(device)

    @property
    def devices(self) -> tuple[Device, ...]:
        """All devices, in index order."""
        return tuple(self._in_order)

    @property
    def free(self) -> tuple[Device, ...]:
        """Devices without a lease that are not set aside, in index order."""
        return tuple(self._free)

    @property
    def leased(self) -> tuple[Device, ...]:
        """Devices with a lease, in index order."""
        return tuple(device for device in self._in_order if device.id in self._lease_numbers)

    @property
    def aside(self) -> tuple[Device, ...]:
        """Devices that are set aside, in index order."""
        if not self._aside:
            return ()
        return tuple(device for device in self._in_order if device.id in self._aside)

    @property
    def leases(self) -> tuple[Lease, ...]:
        """All that are held, the oldest first."""
        return tuple(self._leases.values())

    def leases_on(self, device: Device) -> tuple[Lease, ...]:
        """The leases on a device or a part of it, the oldest first."""
        return tuple(self._leases[number] for number in self._lease_numbers.get(device.id, ()))

    def hands_out(self, device: Device) -> bool:
        """Whether a device belongs to the pool and is not set aside."""
        return device.id in self._devices and device.id not in self._aside

    def free_parts(self, device: Device) -> int:
        """Parts of a device that could be leased now."""
        if not self.hands_out(device):
            return 0
        return WHOLE - sum(lease.parts for lease in self.leases_on(device))

    def can_ever_fit(self, width: Width) -> bool:
        """Whether the width would fit if no device were leased or set aside."""
        suited = (device for device in self._in_order if parts_on(width, device) is not None)
        return sum(1 for _ in islice(suited, n_devices_of(width))) == n_devices_of(width)

    def fits(self, width: Width, *, avoid: AbstractSet[DeviceId] = frozenset()) -> bool:
        """Whether it fits now, on other devices than those to avoid."""
        # Asked in each round of a loop, in most of which everything is leased.
        if not (self._free or self._rooms):
            return False
        if isinstance(width, Devices):
            return len(self._free_besides(avoid)) >= width.n_devices
        return bool(self._choose(width, avoid))

    def lease(
        self,
        width: Width,
        attempt_id: str,
        *,
        may_use: Callable[[Device], bool] = always,
        avoid: AbstractSet[DeviceId] = frozenset(),
    ) -> Lease | None:
        """Leases everything that a width needs; returns None, without a lease, if it does not fit.

        Args:
            width: The devices or parts needed. `placement` chooses which.
            attempt_id: The attempt that will hold the lease.
            may_use: Called once, and only for a device about to be leased, as it may read hardware.
                It may set a device aside that it refuses.
            avoid: Devices not to use.

        Raises:
            ValueError: If the width is less than one device, or a part is 0 or more than WHOLE.
        """
        _check(width)
        devices = self._find(width, may_use, avoid)
        parts = parts_on(width, devices[0]) if devices else None
        if parts is None:
            return None
        number = next(self._numbers)
        lease = Lease(number=number, attempt_id=attempt_id, devices=devices, parts=parts)
        self._leases[number] = lease
        for device in devices:
            self._lease_numbers.setdefault(device.id, []).append(number)
            self._update(device)
        return lease

    def resize(self, lease: Lease, width: Width) -> Lease:
        """Makes a lease on one device smaller or larger. The lease as it was is held no more.

        Raises:
            ValueError: If it would not fit, is on several devices, or is not held here.
        """
        _check(width)
        self._check_held(lease)
        device = lease.devices[0]
        parts = parts_on(width, device)
        is_single = len(lease.devices) == n_devices_of(width) == 1
        if not is_single or parts is None or parts > lease.parts + self.free_parts(device):
            raise ValueError(f"{_named(lease)} cannot become {width}.")
        resized = replace(lease, parts=parts)
        self._leases[lease.number] = resized
        self._update(device)
        return resized

    def release(self, lease: Lease) -> None:
        """Releases the devices of a lease. The caller has checked that they are clear.

        Raises:
            ValueError: If the lease is not held here (a bug: it was released twice).
        """
        self._check_held(lease)
        del self._leases[lease.number]
        for device in lease.devices:
            numbers = self._lease_numbers[device.id]
            numbers.remove(lease.number)
            if not numbers:
                del self._lease_numbers[device.id]
            self._update(device)

    def add(self, device: Device) -> None:
        """Takes a device in.

        Raises:
            ValueError: If it is in already.
        """
        if device.id in self._devices:
            raise ValueError(f"{device.label} ({device.id}) was given to the pool twice.")
        self._devices[device.id] = device
        insort(self._in_order, device, key=index_order)
        self._update(device)

    def withdraw(self, device: Device) -> None:
        """Takes a device out for good; a lease on it can still be released.

        Raises:
            ValueError: If it is not in. The same for `set_aside` and `restore`.
        """
        device = self._own(device)
        self._aside.discard(device.id)
        del self._devices[device.id]
        self._in_order.remove(device)
        self._update(device)

    def set_aside(self, device: Device) -> None:
        """Excludes a device from new leases until `restore`. Safe to call twice."""
        self._aside.add(self._own(device).id)
        self._update(device)

    def restore(self, device: Device) -> None:
        """Includes a device that was set aside again. Safe to call twice."""
        self._aside.discard(self._own(device).id)
        self._update(device)

    def _find(
        self, width: Width, may_use: Callable[[Device], bool], avoid: AbstractSet[DeviceId]
    ) -> tuple[Device, ...]:
        allowed: set[DeviceId] = set()
        while chosen := self._choose(width, avoid):
            asked = [device for device in chosen if device.id not in allowed]
            refused = {device.id for device in asked if not may_use(device)}
            if not refused:
                break
            allowed.update(device.id for device in asked if device.id not in refused)
            avoid = avoid | refused
        return chosen

    def _choose(self, width: Width, avoid: AbstractSet[DeviceId]) -> tuple[Device, ...]:
        if isinstance(width, Devices):
            return choose_devices(width.n_devices, self._free_besides(avoid))
        shared = choose_shared(self._rooms_for(width, avoid))
        if shared is not None:
            return (shared,)
        free = self._free_besides(avoid)
        return choose_devices(1, [each for each in free if parts_on(width, each) is not None])

    def _free_besides(self, avoid: AbstractSet[DeviceId]) -> Sequence[Device]:
        if not avoid:
            return self._free
        return [device for device in self._free if device.id not in avoid]

    def _rooms_for(
        self, width: Width, avoid: AbstractSet[DeviceId]
    ) -> Iterator[tuple[int, Device]]:
        for device_id, room in self._rooms.items():
            device = self._devices[device_id]
            parts = parts_on(width, device)
            if parts is not None and parts <= room and device_id not in avoid:
                yield room, device

    def _update(self, device: Device) -> None:
        """Updates the cached free parts of a device."""
        # A device that left and joined again may have come back with another index.
        device = self._devices.get(device.id, device)
        free_parts = self.free_parts(device)
        if 0 < free_parts < WHOLE:
            self._rooms[device.id] = free_parts
        else:
            self._rooms.pop(device.id, None)
        at = bisect_left(self._free, index_order(device), key=index_order)
        is_listed = self._free[at : at + 1] == [device]
        if free_parts == WHOLE and not is_listed:
            self._free.insert(at, device)
        elif free_parts < WHOLE and is_listed:
            del self._free[at]

    def _own(self, device: Device) -> Device:
        if device.id not in self._devices:
            raise ValueError(f"{device.label} ({device.id}) is not in the pool.")
        return self._devices[device.id]

    def _check_held(self, lease: Lease) -> None:
        if self._leases.get(lease.number) != lease:
            raise ValueError(f"{_named(lease)} is not held.")


def _named(lease: Lease) -> str:
    return f"Lease {lease.number} of attempt {lease.attempt_id}"


def _check(width: Width) -> None:
    if isinstance(width, Devices) and width.n_devices < 1:
        raise ValueError(f"A lease needs at least 1 device, not {width.n_devices}.")
    if isinstance(width, Share) and not 1 <= width.parts <= WHOLE:
        raise ValueError(f"A lease needs 1 to {WHOLE} parts of a device, not {width.parts}.")
