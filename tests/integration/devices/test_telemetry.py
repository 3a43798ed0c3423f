"""What devices do, read by the unmodified pynvml on the stub library, and of real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import psutil
import pytest

from tests.e2e.study_folder import wait_until
from tests.fakes import FakeClock
from tests.nvml_stub import NvmlStub, StubGpu, StubProcess, StubSlice
from tuner.compose.study_plan import open_telemetry
from tuner.devices.cpu_slots.probe import CpuProbe
from tuner.devices.cpu_slots.telemetry import CpuTelemetry
from tuner.devices.device import Device, DeviceId
from tuner.devices.nvidia.probe import open_nvml
from tuner.devices.nvidia.telemetry import NvmlTelemetry
from tuner.devices.usage.readings import DeviceReading, ProcessReading
from tuner.devices.usage.tally import MIB, Holding, charge
from tuner.dispatch.upkeep.telemetry_thread import Sample, Sampler
from tuner.domain.attempt import AttemptId
from tuner.host.clock import SystemClock

A, B = DeviceId("GPU-aa"), DeviceId("GPU-bb")


@pytest.fixture
def stub(loaded_nvml_stub: NvmlStub) -> NvmlStub:
    return loaded_nvml_stub


@pytest.fixture
def open_on(stub: NvmlStub) -> Iterator[Callable[..., NvmlTelemetry]]:
    """Opens telemetry on these GPUs; closes all at the end."""
    opened = []

    def open_on(*gpus: StubGpu) -> NvmlTelemetry:
        stub.write(gpus)
        probe = open_nvml(None)
        assert probe is not None
        opened.append(NvmlTelemetry(probe.devices()))
        probe.close()
        return opened[-1]

    yield open_on
    for each in opened:
        each.close()


def test_every_figure_of_a_gpu(open_on: Callable[..., NvmlTelemetry], stub: NvmlStub) -> None:
    def gpu(pcie: tuple[int, int], nvlink: tuple[int, int]) -> StubGpu:
        return StubGpu(
            uuid=A,
            used_mib=2000,
            utilization_pct=37,
            power_mw=312_000,
            temperature_c=51,
            sm_clock_mhz=1980,
            memory_clock_mhz=2619,
            pcie_bytes=pcie,
            nvlink_kib=nvlink,
            processes=(StubProcess(pid=os.getpid(), mib=1990),),
        )

    telemetry = open_on(gpu((0, 1024), (5, 7)))
    assert telemetry.read({}, 0.0)[A].pcie_rx_kib is None
    stub.write([gpu((1024 * 10, 1024 * 21), (105, 8))])
    own = ProcessReading(session=os.getsid(0), memory_bytes=1990 * MIB, utilization_pct=None)
    assert telemetry.read({}, 1.0)[A] == DeviceReading(
        utilization_pct=37,
        memory_used_bytes=2000 * MIB,
        power_mw=312_000,
        temperature_c=51,
        sm_clock_mhz=1980,
        memory_clock_mhz=2619,
        pcie_rx_kib=10,
        pcie_tx_kib=20,
        nvlink_rx_kib=100,
        nvlink_tx_kib=1,
        processes=(own,),
    )


def test_what_is_not_given_is_none(open_on: Callable[..., NvmlTelemetry]) -> None:
    nothing = StubGpu(
        uuid=A,
        used_mib=None,
        utilization_pct=None,
        power_mw=None,
        temperature_c=None,
        sm_clock_mhz=None,
        memory_clock_mhz=None,
        flags=frozenset({"no_processes", "old_driver"}),
    )
    telemetry = open_on(nothing)
    for now_s in (0.0, 1.0):
        assert telemetry.read({}, now_s)[A] == DeviceReading()


def test_a_slice_of_a_gpu(open_on: Callable[..., NvmlTelemetry]) -> None:
    telemetry = open_on(StubGpu(uuid=A, slices=(StubSlice(uuid="MIG-1", used_mib=12),)))
    reading = DeviceReading(memory_used_bytes=12 * MIB)
    assert telemetry.read({}, 0.0) == {"MIG-1": reading}


def test_processes_that_share_a_gpu(open_on: Callable[..., NvmlTelemetry]) -> None:
    processes = (
        StubProcess(pid=os.getpid(), mib=100, utilization_pct=60),
        StubProcess(pid=2**31 - 1, mib=None, utilization_pct=20),
    )
    telemetry = open_on(StubGpu(uuid=A, processes=processes))
    found = telemetry.read({}, 0.0)[A].processes
    assert [(each.session, each.memory_bytes, each.utilization_pct) for each in found] == [
        (os.getsid(0), 100 * MIB, 60),
        (2**31 - 1, None, 20),
    ]


def test_clients_of_mps_have_no_utilization_of_their_own(
    open_on: Callable[..., NvmlTelemetry],
) -> None:
    # As on an H200: MPS's server is listed with what all of its clients do.
    processes = (
        StubProcess(pid=2**31 - 1, mib=66, utilization_pct=44),
        StubProcess(pid=os.getpid(), mib=1810, is_mps=True),
        StubProcess(pid=os.getppid(), mib=1810, is_mps=True),
    )
    telemetry = open_on(StubGpu(uuid=A, utilization_pct=90, processes=processes))
    reading = telemetry.read({}, 0.0)[A]
    assert [each.utilization_pct for each in reading.processes] == [44, None, None]
    holdings = [
        replace(holding(name, A), share=0.5, sessions=frozenset({os.getsid(pid)}))
        for name, pid in (("0.1", os.getpid()), ("1.1", os.getppid()))
    ]
    spans_ms = {each.attempt_id: 1000 for each in holdings}
    charged = charge(reading, holdings, spans_ms)
    assert [each.utilization_pct_ms for each in charged.values()] == [45_000, 45_000]


def test_counters_that_were_set_back_tell_nothing(
    open_on: Callable[..., NvmlTelemetry], stub: NvmlStub
) -> None:
    telemetry = open_on(StubGpu(uuid=A, nvlink_kib=(100, 100)))
    telemetry.read({}, 0.0)
    stub.write([StubGpu(uuid=A, nvlink_kib=(10, 200))])
    reading = telemetry.read({}, 1.0)[A]
    assert (reading.nvlink_rx_kib, reading.nvlink_tx_kib) == (None, 100)


def test_without_counters_one_gpu_in_turn_is_asked_for_its_rate(
    open_on: Callable[..., NvmlTelemetry],
) -> None:
    flags = frozenset({"no_counters"})
    rate = (2 * MIB, MIB)
    telemetry = open_on(*(StubGpu(uuid=each, pcie_bytes=rate, flags=flags) for each in (A, B)))
    first, second, third = (telemetry.read({}, now_s) for now_s in (0.0, 1.0, 3.0))
    assert [each[A].pcie_rx_kib for each in (first, second, third)] == [None, 2048, 4096]
    assert [each[B].pcie_tx_kib for each in (first, second, third)] == [None, 1024, 2048]


def test_a_lost_gpu_is_left_out_and_the_others_are_read(
    open_on: Callable[..., NvmlTelemetry], stub: NvmlStub
) -> None:
    telemetry = open_on(StubGpu(uuid=A), StubGpu(uuid=B))
    stub.write([StubGpu(uuid=A, flags=frozenset({"lost"})), StubGpu(uuid=B)])
    assert set(telemetry.read({}, 0.0)) == {B}
    telemetry.close()
    assert telemetry.read({}, 1.0) == {}


# -- CPU slots -----------------------------------------------------------------------------------

SPIN = "print(flush=True)\nwhile True: pass"
#: Its child works.
SPAWN = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {SPIN!r}])"


@contextmanager
def running(code: str) -> Iterator[subprocess.Popen[bytes]]:
    program = subprocess.Popen(
        [sys.executable, "-c", code], start_new_session=True, stdout=subprocess.PIPE
    )
    try:
        assert program.stdout is not None
        program.stdout.readline()
        yield program
    finally:
        os.killpg(program.pid, 9)
        program.communicate()


def slots(n: int) -> tuple[Device, ...]:
    return CpuProbe(n, n_cores=n).devices()


def processor_s(pids: list[int]) -> float:
    times = [psutil.Process(pid).cpu_times() for pid in pids]
    return sum(each.user + each.system for each in times)


@pytest.mark.parametrize("code", [SPIN, SPAWN], ids=["itself", "its-child"])
def test_a_slot_does_what_the_processes_of_its_attempt_do(code: str) -> None:
    busy, idle = slots(2)
    telemetry = CpuTelemetry([busy, idle])
    with running(code) as program:
        sessions = {busy.id: frozenset({program.pid})}
        telemetry.read(sessions, 0.0)
        tree = [program.pid, *(c.pid for c in psutil.Process(program.pid).children())]
        before_s = processor_s(tree)
        wait_until(lambda: processor_s(tree) > before_s + 0.2, "the program has worked")
        # On a clock of the test's: all that was used fell into a tenth of a second.
        found = telemetry.read(sessions, 0.1)
    assert (found[busy.id].utilization_pct or 0) >= 200
    assert (found[busy.id].memory_used_bytes or 0) > MIB
    assert [each.session for each in found[busy.id].processes] == [program.pid]
    assert found[idle.id] == DeviceReading(utilization_pct=0, memory_used_bytes=0)


def test_a_process_that_has_ended_takes_nothing() -> None:
    (slot,) = slots(1)
    telemetry = CpuTelemetry([slot])
    with running(SPIN) as program:
        sessions = {slot.id: frozenset({program.pid})}
        telemetry.read(sessions, 0.0)
    assert telemetry.read(sessions, 1.0)[slot.id].memory_used_bytes == 0


# -- sampling ------------------------------------------------------------------------------------


def holding(name: str, device_id: DeviceId, since_s: float = 0.0) -> Holding:
    return Holding(
        attempt_id=AttemptId(name),
        device_id=device_id,
        share=1.0,
        sessions=frozenset({1}),
        since_s=since_s,
    )


def gpus() -> tuple[Device, ...]:
    probe = open_nvml(None)
    assert probe is not None
    found = probe.devices()
    probe.close()
    return found


class Bench:
    """A sampler on the stub, whose looks the test makes on a clock of its own."""

    def __init__(self, telemetry: NvmlTelemetry) -> None:
        self.clock = FakeClock()
        devices = CpuProbe(1).devices()
        self.sampler = Sampler(lambda _: telemetry, devices, self.clock, every_s=1.0)
        self.sampler.look(self.clock.now())

    @property
    def now_s(self) -> float:
        return self.clock.now().monotonic_s

    def looks(self, n: int, every_s: float = 1.0) -> None:
        for _ in range(n):
            self.clock.advance(every_s)
            self.sampler.look(self.clock.now())

    def samples(self) -> list[Sample]:
        return list(self.sampler.take().devices)


def test_a_sample_for_each_device_and_second(open_on: Callable[..., NvmlTelemetry]) -> None:
    bench = Bench(open_on(StubGpu(uuid=A, utilization_pct=40), StubGpu(uuid=B)))
    begin_s = int(bench.clock.now().utc.timestamp())
    bench.looks(4)
    found = bench.samples()
    # The last second may get another look.
    assert [(each.device_id, each.start_s - begin_s) for each in found] == [
        (device_id, second) for second in (1, 2, 3) for device_id in (A, B)
    ]
    assert [(each.tally.covered_ms, each.tally.utilization_pct_ms) for each in found[:2]] == [
        (1000, 40_000),
        (1000, 0),
    ]
    assert bench.samples() == []


def test_two_looks_in_a_second_are_one_sample(open_on: Callable[..., NvmlTelemetry]) -> None:
    bench = Bench(open_on(StubGpu(uuid=A, power_mw=100_000)))
    bench.looks(6, every_s=0.5)
    found = bench.samples()
    assert len({each.start_s for each in found}) == len(found)
    assert sum(each.tally.covered_ms for each in found) == 2500
    assert sum(each.tally.energy_mj or 0 for each in found) == 250_000


def test_a_look_does_not_stand_for_a_night(open_on: Callable[..., NvmlTelemetry]) -> None:
    bench = Bench(open_on(StubGpu(uuid=A)))
    bench.looks(1, every_s=30_000.0)
    bench.looks(1)
    assert [each.tally.covered_ms for each in bench.samples()] == [5000]


def test_an_attempt_is_charged_from_its_lease_to_its_end(
    open_on: Callable[..., NvmlTelemetry],
) -> None:
    bench = Bench(open_on(StubGpu(uuid=A, utilization_pct=50, power_mw=200_000)))
    bench.looks(1)
    bench.sampler.hold([holding("0.1", A, since_s=bench.now_s + 0.75)], bench.now_s)
    bench.looks(2)
    (tally,) = bench.sampler.take().attempts.values()
    assert (tally.covered_ms, tally.utilization_pct_ms) == (1250, 62_500)
    bench.looks(1)
    ((key, tally),) = bench.sampler.take().attempts.items()
    # All of it again, to be written in the place of what was written.
    assert (key, tally.covered_ms, tally.energy_mj) == (("0.1", A), 2250, 450_000)
    bench.clock.advance(0.5)
    bench.sampler.hold([], bench.now_s)
    # From the last look on with what was seen then.
    ((key, tally),) = bench.sampler.take().attempts.items()
    assert (key, tally.covered_ms, tally.energy_mj) == (("0.1", A), 2750, 550_000)
    bench.looks(1)
    assert bench.sampler.take().attempts == {}


def test_rest_of_an_attempt_is_charged_to_it_alone(
    open_on: Callable[..., NvmlTelemetry],
) -> None:
    bench = Bench(open_on(StubGpu(uuid=A, utilization_pct=50, power_mw=200_000)))
    first, second = (replace(holding(name, A), share=0.5) for name in ("0.1", "1.1"))
    bench.sampler.hold([first, second], bench.now_s)
    bench.looks(1)
    bench.clock.advance(0.25)
    # It is known by now which processes are the other's.
    bench.sampler.hold([replace(second, sessions=frozenset({7}))], bench.now_s)
    found = {name: each.covered_ms for (name, _), each in bench.sampler.take().attempts.items()}
    assert found == {"0.1": 1250, "1.1": 1000}
    bench.looks(1)
    found = {name: each.covered_ms for (name, _), each in bench.sampler.take().attempts.items()}
    assert found == {"1.1": 2000 + 250}


def test_look_after_an_attempt_has_ended_is_not_charged_to_it(
    open_on: Callable[..., NvmlTelemetry],
) -> None:
    bench = Bench(open_on(StubGpu(uuid=A, power_mw=200_000)))
    bench.sampler.hold([holding("0.1", A)], bench.now_s)
    bench.looks(1)
    ended_at_s = bench.now_s + 0.75
    bench.looks(1)
    # The loop was busy meanwhile.
    bench.sampler.hold([], ended_at_s)
    (tally,) = bench.sampler.take().attempts.values()
    assert (tally.covered_ms, tally.energy_mj) == (1750, 350_000)


def test_attempt_between_two_looks_is_not_charged_with_what_was_before_it(
    open_on: Callable[..., NvmlTelemetry],
) -> None:
    bench = Bench(open_on(StubGpu(uuid=A, utilization_pct=50)))
    bench.looks(1)
    bench.sampler.hold([holding("0.1", A, since_s=bench.now_s + 0.25)], bench.now_s)
    bench.clock.advance(0.75)
    bench.sampler.hold([], bench.now_s)
    assert bench.sampler.take().attempts == {}


def test_other_devices_are_looked_at_once_a_study_has_them(stub: NvmlStub) -> None:
    stub.write([StubGpu(uuid=A), StubGpu(uuid=B)])
    first, second = gpus()
    clock = FakeClock()
    sampler = Sampler(open_telemetry, [first], clock, every_s=1.0)
    for devices in ([first], [second], [], CpuProbe(1).devices()):
        sampler.look_at(devices)
        for _ in range(3):
            sampler.look(clock.now())
            clock.advance(1.0)
    found = [each.device_id for each in sampler.take().devices]
    sampler.close()
    assert list(dict.fromkeys(found)) == [A, B, "cpu:0"]


def test_without_a_driver_nothing_is_seen(stub: NvmlStub) -> None:
    stub.write([StubGpu(uuid=A)])
    devices = gpus()
    stub.state_file.unlink()
    sampler = Sampler(open_telemetry, devices, FakeClock(), every_s=1.0)
    sampler.look(FakeClock().now())
    assert not sampler.take()
    sampler.close()


def test_what_nobody_takes_is_bounded(open_on: Callable[..., NvmlTelemetry]) -> None:
    bench = Bench(open_on(StubGpu(uuid=A)))
    bench.looks(5_100)
    found = bench.samples()
    assert len(found) == 5_000
    assert found[-1].start_s == int(bench.clock.now().utc.timestamp()) - 1


def test_a_thread_looks_until_it_is_closed(stub: NvmlStub) -> None:
    stub.write([StubGpu(uuid=A)])
    sampler = Sampler(open_telemetry, gpus(), SystemClock(), every_s=0.05)
    began_s = time.monotonic()
    sampler.start()
    found: list[Sample] = []
    wait_until(lambda: bool(found.extend(sampler.take().devices) or found), "there is a sample")
    sampler.close()
    lasted_s = time.monotonic() - began_s
    assert 0 < sum(each.tally.covered_ms for each in found) <= 1000 * lasted_s
