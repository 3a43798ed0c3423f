"""NvmlProbe on the stub library, through the unmodified pynvml."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys

import pynvml
import pytest

from tests.fakes import GIB
from tests.nvml_stub import StubGpu, StubProcess, StubSlice
from tuner.devices.device import DeviceKind, DeviceStatus
from tuner.devices.nvidia.probe import open_nvml
from tuner.devices.request import AutoDevices
from tuner.devices.selection import select_devices
from tuner.errors import DeviceError

MIB = 1024**2


@pytest.fixture
def stub(loaded_nvml_stub):
    return loaded_nvml_stub


@pytest.fixture
def open_probe(stub):
    """Opens a probe on these GPUs; closes all at the end."""
    probes = []

    def open_on(*gpus, visible=None):
        stub.write(gpus)
        probes.append(open_nvml(visible))
        return probes[-1]

    yield open_on
    for probe in probes:
        probe.close()


def only_status(probe):
    (device,) = probe.devices()
    return probe.status(device)


def test_open_without_library_finds_no_gpu(monkeypatch):
    def no_library(name):
        raise OSError(name)

    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", no_library)
    assert open_nvml(None) is None


def test_open_without_driver_finds_no_gpu(stub):
    stub.state_file.unlink()
    assert open_nvml(None) is None


def test_open_with_a_broken_driver_says_what_to_do(stub):
    stub.write([StubGpu(uuid="GPU-aa")], init_code=pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
    with pytest.raises(DeviceError, match=r"version mismatch\. See what nvidia-smi says"):
        open_nvml(None)


def test_gpu_is_read(open_probe):
    probe = open_probe(StubGpu(uuid="GPU-aa", name="NVIDIA A100-SXM4-80GB", utilization_pct=37))
    (gpu,) = probe.devices()
    assert (gpu.id, gpu.kind, gpu.name, gpu.index, gpu.label) == (
        "GPU-aa",
        DeviceKind.GPU,
        "NVIDIA A100-SXM4-80GB",
        0,
        "GPU 0",
    )
    assert gpu.memory_bytes == 80 * GIB
    assert probe.status(gpu) == DeviceStatus(memory_used_bytes=3 * MIB, utilization_pct=37)


def test_status_follows_the_machine(open_probe, stub):
    probe = open_probe(StubGpu(uuid="GPU-aa", used_mib=100))
    stub.write([StubGpu(uuid="GPU-aa", used_mib=200, utilization_pct=99)])
    assert only_status(probe) == DeviceStatus(memory_used_bytes=200 * MIB, utilization_pct=99)


def test_memory_without_version_2_counts_the_reserve_in(open_probe):
    gpu = StubGpu(uuid="GPU-aa", used_mib=3, reserved_mib=600, flags=frozenset({"no_memory_v2"}))
    assert only_status(open_probe(gpu)).memory_used_bytes == 603 * MIB


def test_figures_that_are_not_supported_are_none(open_probe):
    flags = frozenset({"no_processes"})
    probe = open_probe(StubGpu(uuid="GPU-aa", used_mib=None, utilization_pct=None, flags=flags))
    assert probe.devices()[0].memory_bytes is None
    assert only_status(probe) == DeviceStatus(memory_used_bytes=None, utilization_pct=None)


def test_holder_is_named(open_probe):
    own = StubProcess(pid=os.getpid(), mib=512)
    (holder,) = only_status(open_probe(StubGpu(uuid="GPU-aa", processes=(own,)))).holders
    assert (holder.pid, holder.memory_bytes) == (os.getpid(), 512 * MIB)
    assert holder.command
    assert holder.user


def test_holder_that_vanished_or_has_no_figure_is_still_a_holder(open_probe):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    processes = (StubProcess(pid=gone.pid, mib=None), StubProcess(pid=2**32 - 1 - 2**31))
    first, second = only_status(open_probe(StubGpu(uuid="GPU-aa", processes=processes))).holders
    assert (first.user, first.command, first.memory_bytes) == (None, None, None)
    assert (second.command, second.memory_bytes) == (None, 100 * MIB)


@pytest.mark.parametrize("flag", ["lost", "unknown"])
def test_gpu_lost_while_running_is_an_error_that_names_it(open_probe, stub, flag):
    probe = open_probe(StubGpu(uuid="GPU-aa"))
    stub.write([StubGpu(uuid="GPU-aa", flags=frozenset({flag}))])
    with pytest.raises(DeviceError, match=r"GPU 0 \(GPU-aa\) could not be read"):
        only_status(probe)


def test_gpu_lost_before_the_start_is_a_problem_and_keeps_its_number(open_probe):
    lost = StubGpu(uuid="GPU-aa", flags=frozenset({"lost"}))
    probe = open_probe(lost, StubGpu(uuid="GPU-bb"))
    assert [(device.id, device.index) for device in probe.devices()] == [("GPU-bb", 1)]
    assert probe.problems == ("GPU 0 is not used: it could not be read (GPU is lost).",)


def test_status_after_close_is_an_error(open_probe):
    probe = open_probe(StubGpu(uuid="GPU-aa"))
    probe.close()
    with pytest.raises(DeviceError):
        only_status(probe)


@pytest.mark.parametrize(
    ("visible", "expected"),
    [(None, ["GPU-aa", "GPU-bb"]), ("1", ["GPU-bb"]), ("GPU-a", ["GPU-aa"]), ("", [])],
)
def test_visible_devices_are_obeyed(open_probe, visible, expected):
    probe = open_probe(StubGpu(uuid="GPU-aa"), StubGpu(uuid="GPU-bb"), visible=visible)
    assert [device.id for device in probe.devices()] == expected
    assert probe.cuda_visible_devices == visible


def test_mig_slices_take_the_place_of_their_gpu(open_probe):
    slices = (
        StubSlice(uuid="MIG-1", name="NVIDIA A100 MIG 1g.10gb", total_mib=9728, used_mib=12),
        StubSlice(uuid="MIG-2", name="NVIDIA A100", n_compute=3, n_gpu=3, total_mib=40192),
        StubSlice(uuid="MIG-3", name="NVIDIA A100", n_compute=1, n_gpu=3, total_mib=40192),
    )
    probe = open_probe(StubGpu(uuid="GPU-aa"), StubGpu(uuid="GPU-bb", slices=slices))
    gpu, *found = probe.devices()
    assert (gpu.id, gpu.kind) == ("GPU-aa", DeviceKind.GPU)
    assert [(one.id, one.kind, one.label) for one in found] == [
        ("MIG-1", DeviceKind.MIG, "MIG 1 (1g.10gb)"),
        ("MIG-2", DeviceKind.MIG, "MIG 1 (3g.40gb)"),
        ("MIG-3", DeviceKind.MIG, "MIG 1 (1c.3g.40gb)"),
    ]
    assert found[0].memory_bytes == 9728 * MIB
    assert probe.status(found[0]).memory_used_bytes == 12 * MIB
    assert probe.status(found[0]).utilization_pct is None


def test_mig_slice_destroyed_while_running_is_an_error(open_probe, stub):
    one, two = StubSlice(uuid="MIG-1"), StubSlice(uuid="MIG-2")
    probe = open_probe(StubGpu(uuid="GPU-aa", slices=(one, two)))
    stub.write([StubGpu(uuid="GPU-aa", slices=(one,))])
    with pytest.raises(DeviceError, match="MIG-2"):
        probe.status(probe.devices()[1])


def test_auto_leaves_out_a_busy_slice(open_probe):
    busy = StubSlice(uuid="MIG-1", processes=(StubProcess(pid=os.getpid(), mib=100),))
    probe = open_probe(StubGpu(uuid="GPU-aa", slices=(busy, StubSlice(uuid="MIG-2"))))
    selection = select_devices(AutoDevices(), gpus=probe)
    assert [device.id for device in selection.devices] == ["MIG-2"]
    assert f"(pid {os.getpid()}, user " in selection.left_out[0].reason


def test_names_in_bytes_are_read(open_probe, monkeypatch):
    for name in ("nvmlDeviceGetUUID", "nvmlDeviceGetName"):
        # Without pynvml's decorator that makes text of bytes, as its old versions are.
        monkeypatch.setattr(pynvml, name, getattr(pynvml, name).__wrapped__)
    (gpu,) = open_probe(StubGpu(uuid="GPU-aa", name="NVIDIA Stub")).devices()
    assert (gpu.id, gpu.name) == ("GPU-aa", "NVIDIA Stub")


PROGRAM = """
import json
from tuner.devices.nvidia.probe import open_nvml
probe = open_nvml(None)
print(json.dumps([device.id for device in probe.devices()]))
"""


def test_stub_is_found_by_a_subprocess(nvml_stub):
    nvml_stub.write([StubGpu(uuid="GPU-aa"), StubGpu(uuid="GPU-bb")])
    environment = os.environ | nvml_stub.env
    shown = subprocess.check_output([sys.executable, "-c", PROGRAM], env=environment)
    assert json.loads(shown) == ["GPU-aa", "GPU-bb"]


def test_stub_is_not_found_by_name_in_this_process(stub):
    assert not _has_symbol_by_soname("libnvidia-ml.so.1", str(stub.library))


def _has_symbol_by_soname(soname, stub_path):
    """Whether a load by name, as pynvml does it, gives the stub."""
    try:
        by_name = ctypes.CDLL(soname)
    except OSError:
        return False
    stub = ctypes.CDLL(stub_path)
    address = ctypes.cast(by_name.nvmlShutdown, ctypes.c_void_p).value
    return address == ctypes.cast(stub.nvmlShutdown, ctypes.c_void_p).value
