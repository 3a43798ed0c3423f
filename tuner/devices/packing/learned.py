"""What `auto` has learned about trials that share GPUs: memory per trial, and how many to pack."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tuner.devices.allocation.width import ONE, MemoryShare, Width
from tuner.devices.device import Device
from tuner.devices.packing.admission import fits
from tuner.devices.packing.level import Packing
from tuner.devices.packing.memory_model import MemoryModel
from tuner.search_spaces import ParamValue

#: Estimates are rounded up to this many steps between two powers of two, for few widths in all.
_STEPS = 8


class Sharing:
    """Learns from every attempt of a study. Devices of one type are alike.

    Args:
        devices: All devices that the study may have, now or later.
    """

    def __init__(self, devices: Sequence[Device]) -> None:
        self.packing = Packing(devices)
        self._models = {device.name: MemoryModel() for device in devices}
        totals = [device.memory_bytes for device in devices if device.memory_bytes]
        self._smallest_bytes = min(totals, default=0)

    def add(self, device: Device) -> None:
        """The study may have one more device."""
        self.packing.add(device)
        self._models.setdefault(device.name, MemoryModel())
        if device.memory_bytes:
            known_bytes = self._smallest_bytes or device.memory_bytes
            self._smallest_bytes = min(known_bytes, device.memory_bytes)

    def width_of(self, params: Mapping[str, ParamValue]) -> Width:
        """The width of a trial; a whole device if unknown, or if it needs most of one."""
        estimates = [model.predict(params) for model in self._models.values()]
        known = [estimate for estimate in estimates if estimate is not None]
        if len(known) < len(estimates):
            return ONE
        memory_bytes = _rounded_up(max(known))
        if not fits(memory_bytes, self._smallest_bytes, self._smallest_bytes):
            return ONE
        return MemoryShare(memory_bytes=memory_bytes)

    def observe(
        self,
        device: Device,
        params: Mapping[str, ParamValue],
        peak_bytes: int,
        *,
        is_final: bool,
    ) -> None:
        """An attempt was seen to take so much; `is_final`: and never took more."""
        self._models[device.name].observe(params, peak_bytes, is_final=is_final)

    def observe_out_of_memory(
        self, device: Device, params: Mapping[str, ParamValue], had_bytes: int
    ) -> None:
        """An attempt got no more than this, and needs more."""
        self._models[device.name].observe_out_of_memory(params, had_bytes)


def _rounded_up(size_bytes: int) -> int:
    step = 2.0 ** math.floor(math.log2(max(2, size_bytes))) / _STEPS
    return math.ceil(math.ceil(size_bytes / step) * step)
