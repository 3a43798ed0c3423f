"""NVIDIA GPUs, read through NVML, which reports a GPU's state without using it.

A CUDA context in the tuner would take some hundred MiB on every GPU, so CUDA is never used. Figures
that a GPU does not report (MIG slices have no utilization, unified memory has no size) are None.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NewType, TypeVar

import psutil
import pynvml

from tuner.devices.device import Device, DeviceId, DeviceKind, DeviceStatus, Holder
from tuner.devices.nvidia.topology import PCI_DEVICES, read_cores, read_islands, read_numa_node
from tuner.devices.nvidia.visible import Gpu, visible_devices
from tuner.errors import DeviceError

_Handle = NewType("_Handle", object)
_T = TypeVar("_T")

#: Codes that mean "this GPU or driver does not give this figure".
_NOT_GIVEN = frozenset(
    {
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_NOT_FOUND,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A device with its NVML handle."""

    device: Device
    handle: _Handle


def open_nvml(
    cuda_visible_devices: str | None, *, pci_devices: Path = PCI_DEVICES
) -> NvmlProbe | None:
    """Opens NVML; None if this machine has no NVIDIA driver and thus no GPU.

    Args:
        cuda_visible_devices: Value of this variable; None if it is not set.
        pci_devices: Folder with the NUMA nodes of PCI devices on Linux.

    Raises:
        DeviceError: If there is a driver, but it cannot be used.
    """
    try:
        pynvml.nvmlInit()
        return NvmlProbe(cuda_visible_devices, pci_devices)
    except (pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError_DriverNotLoaded):
        return None
    except pynvml.NVMLError as error:
        raise DeviceError(
            f"The NVIDIA driver is here but cannot be used: {_said(error)}. See what nvidia-smi "
            "says (a driver that was updated needs a reboot), or use the CPU with `devices: cpu:4`."
        ) from error


class NvmlProbe:
    """The NVIDIA GPUs and MIG slices of this host. Made by `open_nvml`."""

    def __init__(self, cuda_visible_devices: str | None, pci_devices: Path) -> None:
        self.cuda_visible_devices = cuda_visible_devices
        self._pci_devices = pci_devices
        self._problems: list[str] = []
        self._handles: dict[DeviceId, _Handle] = {}
        self._is_open = True
        gpus = [self._read_gpu(index) for index in range(pynvml.nvmlDeviceGetCount())]
        # Hidden GPUs are included, so that an island has the same number in every process.
        islands = read_islands(self._whole_gpus(gpus))
        self._devices = tuple(
            replace(device, island=islands.get(device.index))
            for device in visible_devices(cuda_visible_devices, gpus)
        )

    @property
    def problems(self) -> tuple[str, ...]:
        """One sentence for each GPU that exists but could not be read."""
        return tuple(self._problems)

    def devices(self) -> tuple[Device, ...]:
        return self._devices

    def status(self, device: Device) -> DeviceStatus:
        handle = self._handles.get(device.id)
        if handle is None or not self._is_open:
            raise DeviceError(f"{device.label} ({device.id}) is not a GPU that can be read here.")
        try:
            return _status(handle)
        except pynvml.NVMLError as error:
            raise DeviceError(
                f"{device.label} ({device.id}) could not be read: {_said(error)}. "
                "See what nvidia-smi says of it; a lost GPU needs a reset or a reboot."
            ) from error

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            pynvml.nvmlShutdown()

    def _read_gpu(self, index: int) -> Gpu:
        try:
            handle = _Handle(pynvml.nvmlDeviceGetHandleByIndex(index))
            uuid = _text(pynvml.nvmlDeviceGetUUID(handle))
            found = self._read_devices(handle, index)
        except pynvml.NVMLError as error:
            self._problems.append(
                f"GPU {index} is not used: it could not be read ({_said(error)})."
            )
            return Gpu(index=index, uuid="", devices=())
        self._handles |= {one.device.id: one.handle for one in found}
        return Gpu(index=index, uuid=uuid, devices=tuple(one.device for one in found))

    def _read_devices(self, gpu: _Handle, index: int) -> tuple[_Found, ...]:
        found = _slices(gpu, index) if _is_mig(gpu) else [_gpu(gpu, index)]
        numa_node, cores = read_numa_node(gpu, self._pci_devices), read_cores(gpu)
        return tuple(
            replace(one, device=replace(one.device, numa_node=numa_node, cores=cores))
            for one in found
        )

    def _whole_gpus(self, gpus: Sequence[Gpu]) -> dict[int, _Handle]:
        devices = (device for gpu in gpus for device in gpu.devices)
        return {
            device.index: self._handles[device.id]
            for device in devices
            if device.kind is DeviceKind.GPU
        }


def _gpu(handle: _Handle, index: int) -> _Found:
    device = Device(
        id=DeviceId(_text(pynvml.nvmlDeviceGetUUID(handle))),
        kind=DeviceKind.GPU,
        name=_text(pynvml.nvmlDeviceGetName(handle)),
        index=index,
        memory_bytes=_memory_total_bytes(handle),
    )
    return _Found(device=device, handle=handle)


def _slices(gpu: _Handle, index: int) -> Iterator[_Found]:
    """The MIG slices of a GPU. Numbers may have gaps after slices were destroyed."""
    gpu_name = _text(pynvml.nvmlDeviceGetName(gpu))
    for number in range(given(lambda: int(pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu))) or 0):
        handle = _slice_handle(gpu, number)
        if handle is not None:
            yield _slice(handle, index, gpu_name)


def _slice_handle(gpu: _Handle, number: int) -> _Handle | None:
    return given(lambda: _Handle(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, number)))


def _slice(handle: _Handle, index: int, gpu_name: str) -> _Found:
    device = Device(
        id=DeviceId(_text(pynvml.nvmlDeviceGetUUID(handle))),
        kind=DeviceKind.MIG,
        name=_profile(handle),
        gpu_name=gpu_name,
        index=index,
        memory_bytes=_memory_total_bytes(handle),
    )
    return _Found(device=device, handle=handle)


def _profile(handle: _Handle) -> str:
    """The slice's profile, such as `1g.10gb`.

    The name of a slice ends with it (`NVIDIA A100-SXM4-80GB MIG 1g.10gb`). Older drivers return the
    name of the GPU; the profile is then built as in NVIDIA's MIG guide.
    """
    name = _text(pynvml.nvmlDeviceGetName(handle))
    profile = re.search(r"\bMIG (\S+)$", name)
    return profile[1] if profile else given(lambda: _profile_from_attributes(handle)) or name


def _profile_from_attributes(handle: _Handle) -> str:
    attributes = pynvml.nvmlDeviceGetAttributes_v2(handle)
    n_compute, n_gpu = attributes.computeInstanceSliceCount, attributes.gpuInstanceSliceCount
    compute = f"{n_compute}c." if n_compute < n_gpu else ""
    # Profiles round up: the slice 1g.10gb of an A100 has 9728 MiB.
    return f"{compute}{n_gpu}g.{math.ceil(attributes.memorySizeMB / 1024)}gb"


def _is_mig(handle: _Handle) -> bool:
    mode = given(lambda: int(pynvml.nvmlDeviceGetMigMode(handle)[0]))
    return mode == int(pynvml.NVML_DEVICE_MIG_ENABLE)


def _status(handle: _Handle) -> DeviceStatus:
    # A MIG slice that was destroyed answers every call with InvalidArgument, which `given`
    # would take for a figure that is not given.
    pynvml.nvmlDeviceGetUUID(handle)
    return DeviceStatus(
        memory_used_bytes=memory_used_bytes(handle),
        utilization_pct=given(lambda: int(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)),
        holders=given(lambda: _holders(handle)) or (),
    )


def _memory_total_bytes(handle: _Handle) -> int | None:
    return given(lambda: int(pynvml.nvmlDeviceGetMemoryInfo(handle).total))


def memory_used_bytes(handle: object) -> int | None:
    """Allocated bytes. Version 1 includes the driver's reserve, so version 2 is tried first."""
    version_2 = pynvml.nvmlMemory_v2
    used = given(lambda: int(pynvml.nvmlDeviceGetMemoryInfo(handle, version=version_2).used))
    if used is not None:
        return used
    return given(lambda: int(pynvml.nvmlDeviceGetMemoryInfo(handle).used))


def _holders(handle: _Handle) -> tuple[Holder, ...]:
    processes = pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle)
    return tuple(_holder(int(one.pid), one.usedGpuMemory) for one in processes)


def _holder(pid: int, memory_bytes: int | None) -> Holder:
    """A process on a GPU; without user and command if in another container or just ended."""
    user: str | None = None
    command: str | None = None
    try:
        process = psutil.Process(pid)
        command = process.name()
        user = process.username()
    except (psutil.Error, OSError, ValueError, OverflowError):
        pass
    return Holder(pid=pid, user=user, command=command, memory_bytes=memory_bytes)


def given(read: Callable[[], _T]) -> _T | None:
    """The result of `read`; None if the GPU or the driver does not support it."""
    try:
        return read()
    except pynvml.NVMLError as error:
        if error.value in _NOT_GIVEN:
            return None
        raise


def _said(error: pynvml.NVMLError) -> str:
    """NVML's text of an error, without a full stop at its end."""
    return str(error).rstrip(".")


def _text(answer: str | bytes) -> str:
    """Older versions of pynvml return bytes."""
    return answer.decode() if isinstance(answer, bytes) else answer
