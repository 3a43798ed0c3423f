"""A study file's limits for GPUs, apart from their names."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tuner.devices.device import Device
from tuner.devices.occupancy import size_text


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLimits:
    """Which GPUs suit a study, and how many it may have. CPU slots are not limited."""

    #: `trial.resources.gpu_type`: words of NVML's names, such as H200; empty for any.
    types: tuple[str, ...] = ()
    #: `trial.resources.min_memory`; of a whole device.
    min_memory_bytes: int | None = None
    #: `max_gpus`.
    max_devices: int | None = None
    #: The key that sets it, for messages.
    maximum_key: str = "max_gpus"

    @property
    def demands(self) -> str:
        """Requirements for a GPU: `trial.resources.gpu_type is [H200, A100]`; empty for none."""
        return " and ".join(filter(None, (self._type_demand, self._memory_demand)))

    def refusal(self, device: Device) -> str | None:
        """Why a GPU does not suit the study, as a sentence; None if it does."""
        if self.types and not any(is_type(name, device) for name in self.types):
            return _left_out(device, type_text(device), self._type_demand)
        if self.min_memory_bytes is not None and not self._has_memory(device):
            return _left_out(device, memory_text(device), self._memory_demand)
        return None

    def _has_memory(self, device: Device) -> bool:
        return (device.memory_bytes or 0) >= (self.min_memory_bytes or 0)

    @property
    def _type_demand(self) -> str:
        return f"trial.resources.gpu_type is [{', '.join(self.types)}]" if self.types else ""

    @property
    def _memory_demand(self) -> str:
        if self.min_memory_bytes is None:
            return ""
        return f"trial.resources.min_memory is {size_text(self.min_memory_bytes)}"


def is_type(name: str, device: Device) -> bool:
    """Whether a device is of a type, which is whole words of its name: A10 is not A100."""
    pattern = rf"(?<![a-z0-9]){re.escape(name.lower())}(?![a-z0-9])"
    return re.search(pattern, type_text(device).lower()) is not None


def type_text(device: Device) -> str:
    """`NVIDIA H200`; of a MIG slice `NVIDIA H200 1g.18gb`."""
    return f"{device.gpu_name} {device.name}" if device.gpu_name else device.name


def memory_text(device: Device) -> str:
    if device.memory_bytes is None:
        return "which does not tell its memory"
    return size_text(device.memory_bytes)


def _left_out(device: Device, what: str, demand: str) -> str:
    return f"{device.label} ({what}) is left out: {demand}."
