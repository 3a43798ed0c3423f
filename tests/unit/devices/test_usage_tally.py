"""Sums that lose nothing, and who is charged with what."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.devices.device import DeviceId
from tuner.devices.usage.readings import DeviceReading, ProcessReading
from tuner.devices.usage.tally import (
    FIGURES,
    MAXIMA,
    MIB,
    Holding,
    Tally,
    charge,
    tally_of,
)
from tuner.domain.attempt import AttemptId

FIGURE = st.none() | st.integers(0, 2**40)
TALLIES = st.builds(
    Tally,
    covered_ms=st.integers(0, 60_000),
    **{name: FIGURE for name in FIGURES if name != "covered_ms"},
)


def holding(name: str, *sessions: int, share: float = 1.0) -> Holding:
    return Holding(
        attempt_id=AttemptId(name),
        device_id=DeviceId("GPU-0"),
        share=share,
        sessions=frozenset(sessions),
        since_s=0.0,
    )


def charged(reading: DeviceReading, *holdings: Holding, span_ms: int = 1000) -> dict[str, Tally]:
    spans_ms = {each.attempt_id: span_ms for each in holdings}
    return {str(name): tally for name, tally in charge(reading, holdings, spans_ms).items()}


def process(session: int, mib: int | None, pct: int | None = None) -> ProcessReading:
    memory = None if mib is None else mib * MIB
    return ProcessReading(session=session, memory_bytes=memory, utilization_pct=pct)


@given(st.lists(TALLIES, max_size=8), st.data())
def test_sums_of_parts_are_the_sum(tallies: list[Tally], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(tallies)))
    whole, first, second = Tally(), Tally(), Tally()
    for each in tallies:
        whole.add(each)
    for each in tallies[:at]:
        first.add(each)
    for each in tallies[at:]:
        second.add(each)
    first.add(second)
    assert first == whole
    for name in FIGURES:
        given_ones = [v for each in tallies if (v := getattr(each, name)) is not None]
        if given_ones:
            assert getattr(whole, name) == (max if name in MAXIMA else sum)(given_ones)


def test_a_look_stands_for_its_span() -> None:
    reading = DeviceReading(
        utilization_pct=50, memory_used_bytes=3 * MIB, power_mw=700_000, temperature_c=60
    )
    tally = tally_of(reading, 2000)
    assert (tally.covered_ms, tally.utilization_pct_ms, tally.utilization_max_pct) == (
        2000,
        100_000,
        50,
    )
    assert (tally.memory_mib_ms, tally.memory_max_mib) == (6000, 3)
    assert (tally.energy_mj, tally.power_max_mw) == (1_400_000, 700_000)
    assert (tally.sm_clock_mhz_ms, tally.pcie_rx_kib) == (None, None)


def test_who_is_alone_did_all_of_it_with_its_own_memory() -> None:
    reading = DeviceReading(
        utilization_pct=80,
        memory_used_bytes=900 * MIB,
        power_mw=300_000,
        processes=(process(7, 500), process(99, 400)),
    )
    tally = charged(reading, holding("0.1", 7))["0.1"]
    assert (tally.utilization_pct_ms, tally.memory_max_mib, tally.energy_mj) == (
        80_000,
        500,
        300_000,
    )


def test_alone_in_a_container_the_memory_is_the_devices() -> None:
    reading = DeviceReading(memory_used_bytes=900 * MIB, processes=(process(99, 900),))
    assert charged(reading, holding("0.1", 7))["0.1"].memory_max_mib == 900


def test_those_who_share_are_told_apart_by_their_processes() -> None:
    reading = DeviceReading(
        utilization_pct=90,
        memory_used_bytes=900 * MIB,
        power_mw=400_000,
        processes=(process(7, 500, 60), process(7, 10, 0), process(8, 300, 20)),
    )
    found = charged(reading, holding("0.1", 7, share=0.5), holding("1.1", 8, share=0.5))
    assert [each.utilization_pct_ms for each in found.values()] == [60_000, 20_000]
    assert [each.memory_max_mib for each in found.values()] == [510, 300]
    assert [each.energy_mj for each in found.values()] == [300_000, 100_000]


def test_those_who_share_and_are_not_told_apart_have_their_shares() -> None:
    reading = DeviceReading(utilization_pct=80, memory_used_bytes=900 * MIB, power_mw=400_000)
    found = charged(reading, holding("0.1", 7, share=0.75), holding("1.1", 8, share=0.25))
    assert [each.utilization_pct_ms for each in found.values()] == [60_000, 20_000]
    assert [each.memory_max_mib for each in found.values()] == [None, None]
    assert [each.energy_mj for each in found.values()] == [300_000, 100_000]


@pytest.mark.parametrize("power_mw", [None, 0, 100_000], ids=["none", "zero", "some"])
def test_energy_of_an_idle_device_is_shared(power_mw: int | None) -> None:
    reading = DeviceReading(utilization_pct=0, power_mw=power_mw)
    found = charged(reading, holding("0.1", 7, share=0.5), holding("1.1", 8, share=0.5))
    expected = None if power_mw is None else power_mw // 2
    assert [each.energy_mj for each in found.values()] == [expected, expected]
