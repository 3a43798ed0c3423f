"""GPUs of others, on the stub library and with real locks of another process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nvml_stub import StubGpu, StubProcess
from tuner.devices.allocation.standby import Standby, own_process_tree
from tuner.devices.limits import GpuLimits
from tuner.devices.locks import DeviceLocks
from tuner.devices.nvidia.probe import open_nvml
from tuner.devices.request import AutoDevices
from tuner.devices.selection import select_devices

A, B = StubGpu(uuid="GPU-aa"), StubGpu(uuid="GPU-bb")
ROOT = Path(__file__).parents[3]
HOLD = """
import sys
from pathlib import Path
from tuner.devices.device import Device, DeviceId, DeviceKind
from tuner.devices.locks import DeviceLocks
locks = DeviceLocks(Path(sys.argv[1]))
device = Device(id=DeviceId("GPU-bb"), kind=DeviceKind.GPU, name="x", index=1)
print(locks.acquire(device), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def locks(tmp_path):
    with DeviceLocks(tmp_path / "locks") as locks:
        yield locks


@pytest.fixture
def stub(loaded_nvml_stub):
    loaded_nvml_stub.write([A, B])
    return loaded_nvml_stub


@pytest.fixture
def probe(stub):
    probe = open_nvml(None)
    yield probe
    probe.close()


def selected(probe, locks, **options):
    """What `auto` takes, and a standby with the rest."""
    limits = GpuLimits(**options)
    selection = select_devices(AutoDevices(), gpus=probe, limits=limits, locks=locks)
    standby = Standby(probe, locks, max_devices=limits.max_devices)
    for device, reason in selection.standby:
        standby.add(device, reason)
    return selection.devices, standby


def test_gpu_of_another_tuner_is_taken_when_that_ends(probe, locks, tmp_path):
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", HOLD, tmp_path / "locks"]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT) as tuner:
        assert tuner.stdout is not None
        assert tuner.stdout.readline() == "True\n"
        devices, standby = selected(probe, locks)
        assert [device.id for device in devices] == ["GPU-aa"]
        assert standby.look(1) == ()
        assert list(standby.reasons.values()) == [f"another tuner (pid {tuner.pid}) uses it"]
        tuner.communicate()
    assert [device.id for device in standby.look(1)] == ["GPU-bb"]
    with DeviceLocks(tmp_path / "locks") as third:
        assert not third.acquire(probe.devices()[1])


def test_busy_gpu_is_taken_when_it_becomes_free(probe, locks, stub):
    busy = StubGpu(uuid="GPU-bb", used_mib=9000, processes=(StubProcess(pid=1, mib=8997),))
    stub.write([A, busy])
    devices, standby = selected(probe, locks)
    assert [device.id for device in devices] == ["GPU-aa"]
    assert standby.look(1) == ()
    stub.write([A, B])
    assert [device.id for device in standby.look(1)] == ["GPU-bb"]


def test_gpu_that_somebody_takes_is_replaced_by_one_beyond_the_maximum(
    probe, locks, stub, tmp_path
):
    (first,), standby = selected(probe, locks, max_devices=1)
    assert (standby.is_taken(first), standby.look(1)) == (None, ())
    # A living process that is none of ours.
    other = os.getppid()
    stub.write([StubGpu(uuid="GPU-aa", processes=(StubProcess(pid=other),)), B])
    reason = standby.is_taken(first)
    assert reason is not None
    assert f"(pid {other}, user " in reason
    standby.add(first, reason)
    assert [device.id for device in standby.look(0)] == ["GPU-bb"]
    stub.write([A, B])
    assert standby.look(1) == ()
    with DeviceLocks(tmp_path / "locks") as third:
        assert third.acquire(first)


def test_own_children_take_nothing(probe, locks, stub):
    (first, _), standby = selected(probe, locks)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert child.pid in own_process_tree()
        stub.write([StubGpu(uuid="GPU-aa", processes=(StubProcess(pid=child.pid),)), B])
        assert standby.is_taken(first) is None
        child.communicate(b"\n")
