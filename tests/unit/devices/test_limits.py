"""Which GPUs suit a study by their type and memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.fakes import GIB, a_gpu
from tuner.devices.device import DeviceKind
from tuner.devices.limits import GpuLimits, is_type

A100 = replace(a_gpu(0), name="NVIDIA A100-SXM4-80GB")


@pytest.mark.parametrize(
    ("asked", "name", "expected"),
    [
        ("H200", "NVIDIA H200", True),
        ("h200", "NVIDIA H200", True),
        ("A100", "NVIDIA A100-SXM4-80GB", True),
        ("a100-sxm4", "NVIDIA A100-SXM4-80GB", True),
        ("RTX 4090", "NVIDIA GeForce RTX 4090", True),
        ("A10", "NVIDIA A100-SXM4-80GB", False),
        ("H200", "NVIDIA GH200 480GB", False),
        ("L4", "NVIDIA L40S", False),
        ("A.00", "NVIDIA A100-SXM4-80GB", False),
    ],
)
def test_type_is_whole_words_of_the_name(asked, name, expected):
    assert is_type(asked, replace(A100, name=name)) is expected


@pytest.mark.parametrize("asked", ["A100", "1g.10gb"])
def test_slice_is_of_its_profile_and_of_its_gpus_type(asked):
    one = replace(A100, kind=DeviceKind.MIG, name="1g.10gb", gpu_name=A100.name)
    assert is_type(asked, one)


def test_refusal_names_the_key_and_what_the_device_is():
    of_type = GpuLimits(types=("H200", "H100"))
    assert of_type.refusal(A100) == (
        "GPU 0 (NVIDIA A100-SXM4-80GB) is left out: trial.resources.gpu_type is [H200, H100]."
    )
    of_memory = GpuLimits(types=("A100",), min_memory_bytes=90 * GIB)
    assert of_memory.refusal(A100) == (
        "GPU 0 (80.0 GiB) is left out: trial.resources.min_memory is 90.0 GiB."
    )
    assert of_memory.refusal(replace(A100, memory_bytes=None)) == (
        "GPU 0 (which does not tell its memory) is left out: "
        "trial.resources.min_memory is 90.0 GiB."
    )


def test_device_that_suits_is_not_refused():
    assert GpuLimits().refusal(A100) is None
    assert GpuLimits(types=("T4", "A100"), min_memory_bytes=80 * GIB).refusal(A100) is None


def test_demands_name_all_keys():
    assert GpuLimits(max_devices=1).demands == ""
    assert GpuLimits(types=("T4",), min_memory_bytes=GIB).demands == (
        "trial.resources.gpu_type is [T4] and trial.resources.min_memory is 1.0 GiB"
    )
