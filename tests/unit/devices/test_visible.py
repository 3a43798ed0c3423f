"""CUDA_VISIBLE_DEVICES means here what it means to CUDA."""

from __future__ import annotations

import pytest

from tuner.devices.device import Device, DeviceId, DeviceKind
from tuner.devices.nvidia.visible import Gpu, visible_devices


def _device(uuid, index):
    kind = DeviceKind.MIG if uuid.startswith("MIG") else DeviceKind.GPU
    return Device(id=DeviceId(uuid), kind=kind, name="x", index=index)


def _gpu(index, uuid, *slices):
    return Gpu(index=index, uuid=uuid, devices=tuple(_device(id, index) for id in slices or [uuid]))


GPUS = (
    _gpu(0, "GPU-aa11"),
    _gpu(1, "GPU-aa22"),
    _gpu(2, "GPU-bb33", "MIG-cc44", "MIG-cc55"),
    Gpu(index=3, uuid="", devices=()),
    _gpu(4, "GPU-dd66"),
)
ALL = "aa11 aa22 cc44 cc55 dd66"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(None, ALL, id="not set"),
        pytest.param("", "", id="empty"),
        pytest.param("-1", "", id="minus one"),
        pytest.param("NoDevFiles", "", id="Slurm's word for none"),
        pytest.param("0,1", "aa11 aa22", id="numbers"),
        pytest.param(" 4 , 0 ", "aa11 dd66", id="spaces, in NVML's order"),
        pytest.param("0,-1,1", "aa11", id="invalid hides what follows"),
        pytest.param("0,9,1", "aa11", id="unknown number hides what follows"),
        pytest.param("0,0", "", id="repeated hides all"),
        pytest.param("0,GPU-aa11", "", id="repeated in two forms hides all"),
        pytest.param("GPU-aa22", "aa22", id="UUID"),
        pytest.param("gpu-BB", "cc44 cc55", id="prefix of a GPU with slices"),
        pytest.param("GPU-aa", "", id="prefix of two GPUs"),
        pytest.param("GPU-aa11,GPU-aa,GPU-dd66", "aa11", id="bad prefix hides what follows"),
        pytest.param("MIG-cc55,0", "aa11 cc55", id="slice and number"),
        pytest.param("MIG-cc", "", id="prefix of two slices"),
        pytest.param("2", "cc44 cc55", id="number of a GPU with slices"),
        pytest.param("3,4", "dd66", id="a lost GPU is there, though of no use"),
    ],
)
def test_visible_devices(text, expected):
    assert [device.id[4:] for device in visible_devices(text, GPUS)] == expected.split()
