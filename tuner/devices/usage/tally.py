"""Sums of device readings, which can be added up without loss.

Each figure is a whole number: a reading times the milliseconds that it covers, or the largest
reading. A sum of sums over parts of a span thus equals the sum over the span exactly, and a mean is
a sum divided by the milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from tuner.devices.device import DeviceId
from tuner.devices.usage.readings import DeviceReading
from tuner.domain.attempt import AttemptId

MIB = 1024**2
MJ_PER_KWH = 3.6e9


@dataclass(slots=True, kw_only=True)
class Tally:
    """Sums of readings of a device, or of an attempt on it. Unreported figures are None."""

    covered_ms: int = 0
    utilization_pct_ms: int | None = None
    utilization_max_pct: int | None = None
    memory_mib_ms: int | None = None
    memory_max_mib: int | None = None
    energy_mj: int | None = None
    power_max_mw: int | None = None
    temperature_c_ms: int | None = None
    temperature_max_c: int | None = None
    sm_clock_mhz_ms: int | None = None
    memory_clock_mhz_ms: int | None = None
    pcie_rx_kib: int | None = None
    pcie_tx_kib: int | None = None
    nvlink_rx_kib: int | None = None
    nvlink_tx_kib: int | None = None

    def add(self, other: Tally) -> None:
        for name in FIGURES:
            before, more = getattr(self, name), getattr(other, name)
            if more is None:
                continue
            if before is None:
                setattr(self, name, more)
            else:
                setattr(self, name, max(before, more) if name in MAXIMA else before + more)


FIGURES = tuple(each.name for each in fields(Tally))
#: All others are sums.
MAXIMA = frozenset(name for name in FIGURES if "_max_" in name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """An attempt's part of a device."""

    attempt_id: AttemptId
    device_id: DeviceId
    #: Share of the device, above 0 and at most 1.
    share: float
    #: Sessions of its ranks.
    sessions: frozenset[int]
    #: On the monotonic clock.
    since_s: float


def tally_of(reading: DeviceReading, span_ms: int) -> Tally:
    """The tally of a reading that covers a span."""
    memory = reading.memory_used_bytes
    memory_mib = None if memory is None else round(memory / MIB)
    return Tally(
        covered_ms=span_ms,
        utilization_pct_ms=_times(reading.utilization_pct, span_ms),
        utilization_max_pct=reading.utilization_pct,
        memory_mib_ms=_times(memory_mib, span_ms),
        memory_max_mib=memory_mib,
        energy_mj=_energy_mj(reading.power_mw, span_ms),
        power_max_mw=reading.power_mw,
        temperature_c_ms=_times(reading.temperature_c, span_ms),
        temperature_max_c=reading.temperature_c,
        sm_clock_mhz_ms=_times(reading.sm_clock_mhz, span_ms),
        memory_clock_mhz_ms=_times(reading.memory_clock_mhz, span_ms),
        pcie_rx_kib=reading.pcie_rx_kib,
        pcie_tx_kib=reading.pcie_tx_kib,
        nvlink_rx_kib=reading.nvlink_rx_kib,
        nvlink_tx_kib=reading.nvlink_tx_kib,
    )


def charge(
    reading: DeviceReading, holdings: Sequence[Holding], spans_ms: Mapping[AttemptId, int]
) -> dict[AttemptId, Tally]:
    """Attributes a device's usage to the attempts on it.

    A single attempt gets all usage. Of several, each gets the usage of its own processes, or in
    proportion to its share if that is not reported. Energy is divided by utilization, or by share
    if all utilization is 0 or unknown.

    Args:
        reading: The device.
        holdings: All attempts that hold it.
        spans_ms: Milliseconds that the reading covers for each.
    """
    utilizations = {each.attempt_id: _utilization(reading, each, holdings) for each in holdings}
    total = sum(each or 0 for each in utilizations.values())
    whole = sum(each.share for each in holdings)
    found = {}
    for each in holdings:
        span_ms = spans_ms[each.attempt_id]
        utilization = utilizations[each.attempt_id]
        memory_mib = _memory_mib(reading, each, is_alone=len(holdings) == 1)
        part = (utilization or 0) / total if total else each.share / whole
        energy_mj = _energy_mj(reading.power_mw, span_ms)
        found[each.attempt_id] = Tally(
            covered_ms=span_ms,
            utilization_pct_ms=_times(utilization, span_ms),
            utilization_max_pct=utilization,
            memory_mib_ms=_times(memory_mib, span_ms),
            memory_max_mib=memory_mib,
            energy_mj=None if energy_mj is None else round(energy_mj * part),
        )
    return found


def _utilization(
    reading: DeviceReading, holding: Holding, holdings: Sequence[Holding]
) -> int | None:
    if reading.utilization_pct is None or len(holdings) == 1:
        return reading.utilization_pct
    own = [each for each in reading.processes if each.session in holding.sessions]
    told = [each.utilization_pct for each in own if each.utilization_pct is not None]
    if own and len(told) == len(own):
        return sum(told)
    return round(reading.utilization_pct * holding.share / sum(each.share for each in holdings))


def _memory_mib(reading: DeviceReading, holding: Holding, *, is_alone: bool) -> int | None:
    """In a container the processes on a GPU have other pids, so none of them is found."""
    own = [each for each in reading.processes if each.session in holding.sessions]
    told = [each.memory_bytes for each in own if each.memory_bytes is not None]
    if own and len(told) == len(own):
        return round(sum(told) / MIB)
    if is_alone and reading.memory_used_bytes is not None:
        return round(reading.memory_used_bytes / MIB)
    return None


def _times(figure: int | None, span_ms: int) -> int | None:
    return None if figure is None else figure * span_ms


def _energy_mj(power_mw: int | None, span_ms: int) -> int | None:
    return None if power_mw is None else round(power_mw * span_ms / 1000)
