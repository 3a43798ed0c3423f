"""Current activity of each device, as the columns of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tuner.app.data.devices.history import CAUSES, IdleColumns
from tuner.app.data.devices.leases import HostDevice, Leases
from tuner.app.data.devices.samples import Present
from tuner.devices.idle_causes import CAUSE_WORDS, FRESH_S, IdleCause

_NOTHING = Present(
    at_s=0,
    utilization_pct=None,
    memory_bytes=None,
    power_w=None,
    temperature_c=None,
    sm_clock_mhz=None,
    pcie_bytes_s=None,
    nvlink_bytes_s=None,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceNow:
    """One device at this moment."""

    device: HostDevice
    #: `trial 17 (attempt 2)`, or the cause of idleness.
    does: str
    for_s: float | None
    present: Present


def devices_now(
    leases: Leases, idle: IdleColumns, present: Mapping[int, Present], now_s: float
) -> list[DeviceNow]:
    """The current state of each device of a live dispatcher, in the order of devices."""
    holders = _holders(leases, now_s)
    idlers = _idlers(idle, now_s)
    return [
        DeviceNow(
            device=device,
            does=does,
            for_s=for_s,
            present=present.get(device.id, _NOTHING),
        )
        for device in leases.devices.values()
        for does, for_s in [holders.get(device.id) or idlers.get(device.id) or ("", None)]
        if does or device.id in present
    ]


def _holders(leases: Leases, now_s: float) -> dict[int, tuple[str, float | None]]:
    """By device: the attempts that hold it, and for how long the first one has done so."""
    columns = leases.columns
    is_held = columns.is_held & np.isin(columns.dispatcher_ids, list(leases.living))
    found: dict[int, tuple[str, float | None]] = {}
    for at in np.flatnonzero(is_held).tolist():
        device_id = int(columns.device_ids[at])
        since_s = float(columns.started_at_s[at])
        text = _text(leases, at)
        before = found.get(device_id)
        if before is not None:
            text = f"{before[0]}, {text}"
            since_s = min(since_s, now_s - (before[1] or 0.0))
        found[device_id] = (text, max(0.0, now_s - since_s))
    return found


def _text(leases: Leases, at: int) -> str:
    columns = leases.columns
    number = int(columns.attempt_numbers[at])
    again = f" (attempt {number})" if number > 1 else ""
    text = f"trial {int(columns.trial_numbers[at])}{again}"
    if not np.isnan(columns.over_at_s[at]):
        return f"{text}: {CAUSE_WORDS[IdleCause.CLEARING]}"
    if np.isnan(columns.hello_at_s[at]):
        return f"{text}: {CAUSE_WORDS[IdleCause.STARTING]}"
    return text


def _idlers(idle: IdleColumns, now_s: float) -> dict[int, tuple[str, float | None]]:
    newest = np.flatnonzero(idle.ended_s >= now_s - FRESH_S)
    return {
        int(idle.device_ids[at]): (
            f"idle: {CAUSE_WORDS[CAUSES[idle.causes[at]]]}",
            float(now_s - idle.began_s[at]),
        )
        for at in newest[np.argsort(idle.ended_s[newest], kind="stable")].tolist()
    }


def now_table(found: Sequence[DeviceNow]) -> dict[str, list[object]]:
    """Columns of a table, with units in their names. Unreported values have no column."""
    columns: dict[str, list[object]] = {
        "host": [each.device.host for each in found],
        "device": [each.device.label for each in found],
        "does": [each.does for each in found],
        "for (s)": [each.for_s for each in found],
        "utilization (%)": [each.present.utilization_pct for each in found],
        "memory (GiB)": [_scaled(each.present.memory_bytes, 2**30) for each in found],
        "power (W)": [each.present.power_w for each in found],
        "temperature (°C)": [each.present.temperature_c for each in found],
        "SM clock (MHz)": [each.present.sm_clock_mhz for each in found],
        "PCIe (MB/s)": [_scaled(each.present.pcie_bytes_s, 1e6) for each in found],
        "NVLink (MB/s)": [_scaled(each.present.nvlink_bytes_s, 1e6) for each in found],
    }
    return {
        name: cells
        for name, cells in columns.items()
        if name in ("host", "device", "does") or any(cell is not None for cell in cells)
    }


def _scaled(figure: float | None, unit: float) -> float | None:
    return None if figure is None else figure / unit
