"""Usage of NVIDIA GPUs, second by second, through NVML.

It has NVML handles of its own: several threads may call NVML at once, and leasing must not wait for
telemetry.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NewType

import pynvml

from tuner.devices.device import Device, DeviceId
from tuner.devices.nvidia.probe import given, memory_used_bytes
from tuner.devices.usage.readings import DeviceReading, ProcessReading, Sessions

_Handle = NewType("_Handle", object)

#: All links together.
_ALL_LINKS = 0xFFFFFFFF
_COUNTERS = (
    pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES,
    pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES,
    (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, _ALL_LINKS),
    (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _ALL_LINKS),
)
#: KiB per unit of each counter.
_KIB = (1 / 1024, 1 / 1024, 1.0, 1.0)
#: A counter of 32 bits would wrap several times between two looks.
_WIDE_TYPES = (pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG, pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG)
_NOTHING: tuple[int | None, ...] = (None, None, None, None)


@dataclass(slots=True, kw_only=True)
class _Gpu:
    """A GPU or MIG slice, and its last readings."""

    id: DeviceId
    handle: _Handle
    at_s: float | None = None
    counters: tuple[int | None, ...] = _NOTHING
    #: PCIe rates received and sent, if there are no counters.
    rates_kib_s: tuple[int, int] | None = None
    #: NVML's clock, of the newest utilization of a process.
    used_at_us: int = 0


class NvmlTelemetry:
    """Reads GPUs and MIG slices.

    Args:
        devices: The devices. Those that no longer exist are left out of readings.

    Raises:
        pynvml.NVMLError: If the driver cannot be used.
    """

    def __init__(self, devices: Sequence[Device]) -> None:
        pynvml.nvmlInit()
        self._is_open = True
        self._gpus = [gpu for device in devices if (gpu := _find(device)) is not None]
        self._n_looks = 0

    def read(self, sessions: Sessions, now_s: float) -> Mapping[DeviceId, DeviceReading]:
        if not self._is_open:
            return {}
        self._n_looks += 1
        readings = {}
        for place, gpu in enumerate(self._gpus):
            is_its_turn = self._n_looks % len(self._gpus) == place
            try:
                readings[gpu.id] = _read(gpu, now_s, may_sleep=is_its_turn)
            except pynvml.NVMLError:
                gpu.at_s = None  # Lost; `DeviceWatch` deals with that.
        return readings

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            pynvml.nvmlShutdown()


def open_nvml_telemetry(devices: Sequence[Device]) -> NvmlTelemetry | None:
    """The same, or None if the driver refuses."""
    try:
        return NvmlTelemetry(devices)
    except pynvml.NVMLError:
        return None


def _find(device: Device) -> _Gpu | None:
    try:
        handle = _Handle(pynvml.nvmlDeviceGetHandleByUUID(device.cuda_id))
    except pynvml.NVMLError:
        return None
    return _Gpu(id=device.id, handle=handle)


def _read(gpu: _Gpu, now_s: float, *, may_sleep: bool) -> DeviceReading:
    handle = gpu.handle
    # Also detects whether it exists: a figure may be unavailable for other reasons.
    pynvml.nvmlDeviceGetUUID(handle)
    pcie_rx, pcie_tx, nvlink_rx, nvlink_tx = _traffic(gpu, now_s, may_sleep=may_sleep)
    sm, memory = pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM
    return DeviceReading(
        utilization_pct=given(lambda: int(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)),
        memory_used_bytes=memory_used_bytes(handle),
        power_mw=given(lambda: int(pynvml.nvmlDeviceGetPowerUsage(handle))),
        temperature_c=given(
            lambda: int(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU))
        ),
        sm_clock_mhz=given(lambda: int(pynvml.nvmlDeviceGetClockInfo(handle, sm))),
        memory_clock_mhz=given(lambda: int(pynvml.nvmlDeviceGetClockInfo(handle, memory))),
        pcie_rx_kib=pcie_rx,
        pcie_tx_kib=pcie_tx,
        nvlink_rx_kib=nvlink_rx,
        nvlink_tx_kib=nvlink_tx,
        processes=given(lambda: _processes(gpu)) or (),
    )


# -- traffic -------------------------------------------------------------------------------------


def _traffic(gpu: _Gpu, now_s: float, *, may_sleep: bool) -> tuple[int | None, ...]:
    """KiB over PCIe (received, sent) and NVLink since the last look."""
    before, before_s = gpu.counters, gpu.at_s
    gpu.counters = given(lambda: _counters(gpu.handle)) or _NOTHING
    gpu.at_s = now_s
    if gpu.counters[0] is None and may_sleep:
        gpu.rates_kib_s = given(lambda: _pcie_rates(gpu.handle))
    if before_s is None:
        return _NOTHING
    passed = [_passed(*each) for each in zip(before, gpu.counters, _KIB, strict=True)]
    if gpu.counters[0] is None and gpu.rates_kib_s is not None:
        passed[:2] = [round(rate * (now_s - before_s)) for rate in gpu.rates_kib_s]
    return tuple(passed)


def _passed(before: int | None, now: int | None, kib: float) -> int | None:
    """A counter that has become smaller was set back with its driver, or has wrapped."""
    if before is None or now is None or now < before:
        return None
    return round((now - before) * kib)


def _counters(handle: _Handle) -> tuple[int | None, ...]:
    values = pynvml.nvmlDeviceGetFieldValues(handle, _COUNTERS)
    return tuple(
        int(each.value.ullVal)
        if each.nvmlReturn == pynvml.NVML_SUCCESS and each.valueType in _WIDE_TYPES
        else None
        for each in values
    )


def _pcie_rates(handle: _Handle) -> tuple[int, int]:
    """PCIe rates of older GPUs. NVML takes 20 ms for each, so one GPU is read at a time."""
    received = pynvml.nvmlDeviceGetPcieThroughput(handle, pynvml.NVML_PCIE_UTIL_RX_BYTES)
    sent = pynvml.nvmlDeviceGetPcieThroughput(handle, pynvml.NVML_PCIE_UTIL_TX_BYTES)
    return int(received), int(sent)


# -- processes -----------------------------------------------------------------------------------


def _processes(gpu: _Gpu) -> tuple[ProcessReading, ...]:
    found = pynvml.nvmlDeviceGetComputeRunningProcesses_v3(gpu.handle)
    # A process that is alone does all that its GPU does.
    shares = (given(lambda: _utilizations(gpu)) or {}) if len(found) > 1 else {}
    clients = given(lambda: _mps_clients(gpu)) or frozenset() if shares else frozenset()
    return tuple(
        ProcessReading(
            session=_session(int(one.pid)),
            memory_bytes=one.usedGpuMemory,
            utilization_pct=(
                shares.get(int(one.pid), 0) if shares and int(one.pid) not in clients else None
            ),
        )
        for one in found
    )


def _mps_clients(gpu: _Gpu) -> frozenset[int]:
    """Processes under MPS: NVML gives what they do together, as the utilization of the server."""
    found = pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3(gpu.handle)
    return frozenset(int(one.pid) for one in found)


def _utilizations(gpu: _Gpu) -> dict[int, int]:
    """Multiprocessor utilization by pid since the last reading; the newest of several samples."""
    samples = pynvml.nvmlDeviceGetProcessUtilization(gpu.handle, gpu.used_at_us)
    newest = sorted(samples, key=lambda each: int(each.timeStamp))
    gpu.used_at_us = int(newest[-1].timeStamp) if newest else gpu.used_at_us
    return {int(each.pid): int(each.smUtil) for each in newest}


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return pid  # Gone, or of another container.
