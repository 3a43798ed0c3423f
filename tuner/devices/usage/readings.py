"""Readings of a device at one time, with more figures than leasing needs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from tuner.devices.device import DeviceId


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessReading:
    """One process on a device."""

    #: Id of its session: that of the rank's process.
    session: int
    #: None if the device does not report it; the same below.
    memory_bytes: int | None
    utilization_pct: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReading:
    """One look at a device. A figure that it does not give is None."""

    #: For a CPU slot: of its cores; above 100 if a program uses more than its slot.
    utilization_pct: int | None = None
    memory_used_bytes: int | None = None
    power_mw: int | None = None
    temperature_c: int | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    #: Since the last look; None at the first one.
    pcie_rx_kib: int | None = None
    pcie_tx_kib: int | None = None
    nvlink_rx_kib: int | None = None
    nvlink_tx_kib: int | None = None
    processes: tuple[ProcessReading, ...] = ()


#: The sessions of the attempts that hold each device.
Sessions = Mapping[DeviceId, Collection[int]]


class Telemetry(Protocol):
    """Reads devices repeatedly, in one thread that blocks no other."""

    def read(self, sessions: Sessions, now_s: float) -> Mapping[DeviceId, DeviceReading]:
        """Reads all devices now; one that cannot be read is left out.

        Args:
            sessions: Sessions of the tuner's processes.
            now_s: The current monotonic time in seconds.
        """

    def close(self) -> None:
        """Lets the driver go. Safe to call twice."""
