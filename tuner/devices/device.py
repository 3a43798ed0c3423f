"""A device: one GPU, one MIG slice or one CPU slot of this host, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NewType, Protocol

DeviceId = NewType("DeviceId", str)
"""`GPU-<uuid>`, `MIG-<uuid>` or `cpu:<slot>`: unique on one host."""


class DeviceKind(Enum):
    """Kinds of devices."""

    GPU = "gpu"
    MIG = "mig"
    CPU = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One schedulable accelerator or CPU slot."""

    id: DeviceId
    kind: DeviceKind
    name: str
    #: As nvidia-smi numbers GPUs; a MIG slice has the number of its GPU; a CPU slot its own.
    index: int
    #: Memory of the whole device; None for a CPU slot.
    memory_bytes: int | None = None
    #: Threads that a trial on a CPU slot should use; None for a GPU.
    n_threads: int | None = None
    #: Number of its NVLink island; None without such a link.
    island: int | None = None
    #: The nearest NUMA node; None if unknown.
    numa_node: int | None = None
    #: The nearest CPU cores; empty if unknown or irrelevant.
    cores: tuple[int, ...] = ()
    #: The name of the GPU that a MIG slice is part of; None for other devices.
    gpu_name: str | None = None
    #: The GPU of which this is an equal share; None for other devices.
    share_of: DeviceId | None = None
    n_shares: int = 1

    @property
    def cuda_id(self) -> DeviceId:
        """Its id in CUDA and NVML."""
        return self.share_of or self.id

    @property
    def label(self) -> str:
        """Its label: `GPU 0`, `MIG 0 (1g.10gb)`, `cpu:3`."""
        if self.share_of is not None:
            return f"GPU {self.index} (share {share_number(self.id)})"
        if self.kind is DeviceKind.GPU:
            return f"GPU {self.index}"
        if self.kind is DeviceKind.MIG:
            return f"MIG {self.index} ({self.name})"
        return str(self.id)


def id_of_share(gpu_id: DeviceId, number: int) -> DeviceId:
    """`GPU-<uuid>#2`: the second share of a GPU."""
    return DeviceId(f"{gpu_id}#{number}")


def gpu_of_share(device_id: DeviceId) -> DeviceId:
    """The GPU of a share; the device itself if it is no share."""
    return DeviceId(device_id.partition("#")[0])


def share_number(device_id: DeviceId) -> int:
    """1 for the first one."""
    return int(device_id.partition("#")[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """One process that has memory on a device."""

    pid: int
    #: None if the user of the process cannot be read.
    user: str | None
    command: str | None
    memory_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceStatus:
    """State of a device at one time."""

    memory_used_bytes: int | None
    utilization_pct: int | None
    holders: tuple[Holder, ...] = ()


class DeviceProbe(Protocol):
    """Finds and reads the devices of this host. Never creates a CUDA context."""

    def devices(self) -> tuple[Device, ...]:
        """All devices that this process may use, in the order that nvidia-smi shows them."""

    def status(self, device: Device) -> DeviceStatus:
        """Reads a device now.

        Raises:
            DeviceError: If the device is gone (for instance, fell off the bus).
        """

    def close(self) -> None:
        """Lets the driver go. Safe to call twice."""
