"""The rows of `tuner devices`."""

from __future__ import annotations

from tests.fakes import GIB, FakeProbe, a_gpu
from tuner.devices.cpu_slots.probe import CpuProbe
from tuner.devices.device import Device, Holder
from tuner.devices.table import DeviceRow, describe

ANN = Holder(pid=4242, user="ann", command="python", memory_bytes=8 * GIB)


class OwnedBy:
    def __init__(self, pid: int) -> None:
        self.pid = pid

    def acquire(self, device: Device) -> bool:
        raise AssertionError("a table claims nothing")

    def release(self, device: Device) -> None:
        raise AssertionError("a table gives nothing back")

    def owner_pid(self, device: Device) -> int | None:
        return self.pid if device.index == 0 else None


def test_describe_tells_load_and_holders():
    probe = FakeProbe(3)
    probe.use(a_gpu(1), ANN)
    probe.lose(a_gpu(2))
    free, busy, lost = describe(probe)
    assert free == DeviceRow(
        label="GPU 0",
        id=a_gpu(0).id,
        name="NVIDIA Fake",
        memory_total_bytes=80 * GIB,
        memory_used_bytes=0,
        utilization_pct=0,
        island=None,
        numa_node=None,
        holders="",
        is_free=True,
    )
    assert (busy.memory_used_bytes, busy.is_free) == (8 * GIB, False)
    assert busy.holders == "python (pid 4242, user ann) holds 8.0 GiB of it"
    assert (lost.memory_used_bytes, lost.is_free) == (None, False)
    assert "could not be read" in lost.holders


def test_describe_own_processes_leave_the_device_free():
    probe = FakeProbe(1)
    probe.use(a_gpu(0), ANN)
    (row,) = describe(probe, own_pids=frozenset({4242}))
    assert row.is_free
    assert row.holders.startswith("python (pid 4242")


def test_describe_another_tuner_makes_the_device_not_free():
    first, second = describe(FakeProbe(2), locks=OwnedBy(77))
    assert (first.holders, first.is_free) == ("another tuner (pid 77) uses it", False)
    assert second.is_free
    assert describe(FakeProbe(1), own_pids=frozenset({77}), locks=OwnedBy(77))[0].is_free


def test_describe_cpu_slots():
    (row,) = describe(CpuProbe(1, n_cores=2))
    assert (row.label, row.memory_total_bytes, row.holders, row.is_free) == (
        "cpu:0",
        None,
        "",
        True,
    )
