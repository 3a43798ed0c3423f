"""GPUs that `CUDA_VISIBLE_DEVICES` leaves visible, by CUDA's own rules.

The tuner reads devices through NVML, which ignores the variable; training programs apply it. If a
scheduler or a user hides a GPU, the tuner must not use it either.

https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.devices.device import Device, DeviceId


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A physical GPU and its leasable devices."""

    index: int
    #: Empty if the GPU is lost and no longer reports it.
    uuid: str
    #: The GPU itself, or its MIG slices; empty if it is lost.
    devices: tuple[Device, ...]


def visible_devices(cuda_visible_devices: str | None, gpus: Sequence[Gpu]) -> tuple[Device, ...]:
    """The visible devices, in the order of `gpus`.

    Args:
        cuda_visible_devices: The variable's value; None if it is not set.
        gpus: All GPUs, in NVML's order.
    """
    everything = tuple(device for gpu in gpus for device in gpu.devices)
    if cuda_visible_devices is None:
        return everything
    named = _named(cuda_visible_devices, gpus)
    return tuple(device for device in everything if device.id in named)


def _named(text: str, gpus: Sequence[Gpu]) -> set[DeviceId]:
    """An invalid entry hides itself and all after it; a repeated one hides everything."""
    named: set[DeviceId] = set()
    for entry in text.split(","):
        ids = _ids(entry.strip(), gpus)
        if ids is None:
            break
        if named & ids:
            return set()
        named |= ids
    return named


def _ids(entry: str, gpus: Sequence[Gpu]) -> set[DeviceId] | None:
    """The devices that one entry means; None if it is invalid."""
    if entry.upper().startswith("MIG-"):
        slices = [
            device for gpu in gpus for device in gpu.devices if _abbreviates(entry, device.id)
        ]
        return {slices[0].id} if len(slices) == 1 else None
    matching = [gpu for gpu in gpus if _means(entry, gpu)]
    return {device.id for device in matching[0].devices} if len(matching) == 1 else None


def _means(entry: str, gpu: Gpu) -> bool:
    if entry.isdecimal():
        return int(entry) == gpu.index
    return entry.upper().startswith("GPU-") and _abbreviates(entry, gpu.uuid)


def _abbreviates(entry: str, uuid: str) -> bool:
    return uuid.lower().startswith(entry.lower())
