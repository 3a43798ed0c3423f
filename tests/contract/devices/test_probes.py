"""What every device probe does, the fake of the other tests and the real ones alike."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.fakes import FakeProbe
from tests.nvml_stub import NvmlStub, StubGpu, StubSlice
from tuner.devices.cpu_slots.probe import CpuProbe
from tuner.devices.device import Device, DeviceId, DeviceKind, DeviceProbe, DeviceStatus
from tuner.devices.nvidia.probe import open_nvml
from tuner.errors import DeviceError

STUB_GPUS = [
    StubGpu(uuid="GPU-aa"),
    StubGpu(uuid="GPU-bb", slices=(StubSlice(uuid="MIG-b1"), StubSlice(uuid="MIG-b2"))),
]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A probe, and how to take its devices away; None where they cannot be lost."""

    probe: DeviceProbe
    lose_all: Callable[[], None] | None


def fake_case() -> Case:
    probe = FakeProbe(3)

    def lose_all() -> None:
        for device in probe.devices():
            probe.lose(device)

    return Case(probe=probe, lose_all=lose_all)


def nvml_case(stub: NvmlStub) -> Case:
    stub.write(STUB_GPUS)
    probe = open_nvml(None)
    assert probe is not None
    lost = [dataclasses.replace(gpu, flags=frozenset({"lost"})) for gpu in STUB_GPUS]
    return Case(probe=probe, lose_all=lambda: stub.write(lost))


@pytest.fixture(params=["fake", "cpu", "nvml"])
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    if request.param == "fake":
        case = fake_case()
    elif request.param == "cpu":
        case = Case(probe=CpuProbe(3), lose_all=None)
    else:
        case = nvml_case(request.getfixturevalue("loaded_nvml_stub"))
    yield case
    case.probe.close()


def test_devices_have_ids_of_their_own_and_are_in_order(case: Case):
    devices = case.probe.devices()
    assert len(devices) == 3
    assert len({device.id for device in devices}) == 3
    assert [device.index for device in devices] == sorted(device.index for device in devices)


def test_devices_stay_the_same(case: Case):
    assert case.probe.devices() == case.probe.devices()


def test_device_ids_tell_their_kind(case: Case):
    prefixes = {DeviceKind.GPU: "GPU-", DeviceKind.MIG: "MIG-", DeviceKind.CPU: "cpu:"}
    assert all(device.id.startswith(prefixes[device.kind]) for device in case.probe.devices())


def test_device_has_threads_or_memory(case: Case):
    for device in case.probe.devices():
        is_cpu = device.kind is DeviceKind.CPU
        assert (device.n_threads is not None) == is_cpu
        assert (device.memory_bytes is None) == is_cpu


def test_device_tells_where_it_is_or_that_it_does_not(case: Case):
    for device in case.probe.devices():
        assert device.island is None or device.island >= 0
        assert device.numa_node is None or device.numa_node >= 0
        assert list(device.cores) == sorted(set(device.cores))


def test_status_is_read_for_each_device(case: Case):
    for device in case.probe.devices():
        status = case.probe.status(device)
        assert isinstance(status, DeviceStatus)
        assert 0 <= (status.memory_used_bytes or 0) <= (device.memory_bytes or 0)
        assert 0 <= (status.utilization_pct or 0) <= 100
        assert status.holders == ()


def test_status_of_a_strange_device_is_an_error(case: Case):
    strange = Device(id=DeviceId("GPU-strange"), kind=DeviceKind.GPU, name="x", index=99)
    with pytest.raises(DeviceError, match="GPU 99"):
        case.probe.status(strange)


def test_status_of_a_lost_device_is_an_error_that_names_it(case: Case):
    if case.lose_all is None:
        pytest.skip("CPU slots cannot be lost")
    devices = case.probe.devices()
    case.lose_all()
    assert case.probe.devices() == devices
    for device in devices:
        with pytest.raises(DeviceError, match=device.id):
            case.probe.status(device)


def test_close_twice_is_safe(case: Case):
    case.probe.close()
    case.probe.close()
