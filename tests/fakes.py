"""Stand-ins for the adapters. One is here only if the contract suite also runs on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tuner.devices.device import Device, DeviceId, DeviceKind, DeviceStatus, Holder
from tuner.errors import DeviceError

GIB = 1024**3


def a_gpu(index: int, *, memory_bytes: int = 80 * GIB) -> Device:
    """A GPU with a UUID made of its number: `GPU-00000000-…`."""
    return Device(
        id=DeviceId(f"GPU-{index:08x}-0000-4000-8000-000000000000"),
        kind=DeviceKind.GPU,
        name="NVIDIA Fake",
        index=index,
        memory_bytes=memory_bytes,
    )


class FakeProbe:
    """GPUs whose state the test sets.

    Args:
        devices: A number of idle GPUs, or the devices themselves.
        cuda_visible_devices: Only told back, as `GpuProbe` asks.
        problems: Likewise.
    """

    def __init__(
        self,
        devices: int | Sequence[Device] = 2,
        *,
        cuda_visible_devices: str | None = None,
        problems: tuple[str, ...] = (),
    ) -> None:
        listed = [a_gpu(index) for index in range(devices)] if isinstance(devices, int) else devices
        idle = DeviceStatus(memory_used_bytes=0, utilization_pct=0)
        self._devices = tuple(listed)
        self._statuses: dict[DeviceId, DeviceStatus] = {device.id: idle for device in listed}
        self.cuda_visible_devices = cuda_visible_devices
        self.problems = problems
        self.is_open = True

    def devices(self) -> tuple[Device, ...]:
        return self._devices

    def status(self, device: Device) -> DeviceStatus:
        if not self.is_open or device.id not in self._statuses:
            raise DeviceError(f"{device.label} ({device.id}) could not be read: it is lost.")
        return self._statuses[device.id]

    def close(self) -> None:
        self.is_open = False

    def use(self, device: Device, *holders: Holder, memory_used_bytes: int | None = None) -> None:
        """Puts processes on a device; its memory is theirs where none is given."""
        used = sum(holder.memory_bytes or 0 for holder in holders)
        if memory_used_bytes is not None:
            used = memory_used_bytes
        before = self._statuses[device.id]
        self._statuses[device.id] = replace(before, memory_used_bytes=used, holders=holders)

    def set_status(self, device: Device, status: DeviceStatus) -> None:
        self._statuses[device.id] = status

    def lose(self, device: Device) -> None:
        """The GPU falls off the bus: reading it fails from now on."""
        del self._statuses[device.id]
