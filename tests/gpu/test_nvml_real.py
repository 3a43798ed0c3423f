"""NvmlProbe on NVIDIA's own library."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from tuner.devices.device import DeviceKind
from tuner.devices.nvidia.probe import open_nvml
from tuner.devices.nvidia.telemetry import NvmlTelemetry

pytestmark = pytest.mark.gpu

UUID = re.compile(r"(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
NODES = Path("/sys/devices/system/node")
N_BYTES = 512 * 1024**2

ALLOCATE = f"""
import sys, torch
held = torch.zeros({N_BYTES}, dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def probe():
    found = open_nvml(os.environ.get("CUDA_VISIBLE_DEVICES"))
    if found is None:
        pytest.skip("no NVIDIA driver on this machine")
    if not found.devices():
        pytest.skip("no NVIDIA GPU is visible")
    yield found
    found.close()


def test_devices_have_a_uuid_a_name_and_memory(probe):
    assert probe.problems == ()
    for device in probe.devices():
        assert UUID.fullmatch(device.id)
        assert device.name
        assert device.memory_bytes is None or device.memory_bytes > 0


def test_status_is_within_bounds(probe):
    for device in probe.devices():
        status = probe.status(device)
        assert 0 <= (status.memory_used_bytes or 0) <= (device.memory_bytes or 0)
        assert 0 <= (status.utilization_pct or 0) <= 100


def test_where_a_gpu_is_agrees_with_linux(probe):
    nodes = {int(path.name.removeprefix("node")) for path in NODES.glob("node[0-9]*")}
    for device in probe.devices():
        assert device.numa_node is None or device.numa_node in nodes
        assert set(device.cores) < os.sched_getaffinity(0)
        assert list(device.cores) == sorted(device.cores)


def test_islands_are_of_two_gpus_at_least():
    found = open_nvml(None)
    if found is None:
        pytest.skip("no NVIDIA driver on this machine")
    islands = Counter(one.island for one in found.devices() if one.island is not None)
    found.close()
    assert sorted(islands) == list(range(len(islands)))
    assert all(n_gpus > 1 for n_gpus in islands.values())


def test_topology_is_read_quickly():
    start_s = time.monotonic()
    found = open_nvml(None)
    if found is None:
        pytest.skip("no NVIDIA driver on this machine")
    elapsed_s = time.monotonic() - start_s
    found.close()
    assert elapsed_s < 5.0


def test_own_process_is_a_holder_and_its_memory_is_counted(probe):
    torch = pytest.importorskip("torch")
    if not torch.backends.cuda.is_built():
        pytest.skip("this torch is built without CUDA")
    device = probe.devices()[0]
    before_bytes = probe.status(device).memory_used_bytes
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": device.id}
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", ALLOCATE]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        status = probe.status(device)
        are_ours = all(psutil.pid_exists(holder.pid) for holder in status.holders)
        other.communicate()
    if before_bytes is not None:
        assert status.memory_used_bytes >= before_bytes + N_BYTES
    if not status.holders:
        pytest.skip("NVML shows no processes here (a container hides them)")
    if not are_ours:
        pytest.skip("NVML shows pids of another namespace here (a container)")
    assert other.pid in {holder.pid for holder in status.holders}


def test_what_gpus_do_is_told(probe):
    telemetry = NvmlTelemetry(probe.devices())
    telemetry.read({}, 0.0)
    found = telemetry.read({}, 1.0)
    telemetry.close()
    assert set(found) == {device.id for device in probe.devices()}
    for device in probe.devices():
        reading = found[device.id]
        assert 0 <= (reading.memory_used_bytes or 0) <= (device.memory_bytes or 0)
        if device.kind is DeviceKind.GPU:
            assert 0 <= (reading.utilization_pct or 0) <= 100
            assert 0 < (reading.power_mw or 1) < 5_000_000
            assert 0 < (reading.temperature_c or 1) < 150
            assert 0 < (reading.sm_clock_mhz or 1) < 10_000
            assert (reading.pcie_rx_kib or 0) >= 0
            assert (reading.nvlink_tx_kib or 0) >= 0
