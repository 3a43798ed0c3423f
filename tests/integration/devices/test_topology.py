"""Where GPUs are in the machine, on the stub library, through the unmodified pynvml."""

from __future__ import annotations

import os
from itertools import combinations

import pynvml
import pytest

from tests.nvml_stub import StubGpu, StubSlice
from tuner.devices.nvidia.probe import open_nvml

USABLE = sorted(os.sched_getaffinity(0))


@pytest.fixture
def read(loaded_nvml_stub, tmp_path):
    """The devices of a machine with these GPUs."""

    def read_devices(*gpus, visible=None):
        loaded_nvml_stub.write(gpus)
        probe = open_nvml(visible, pci_devices=tmp_path)
        assert probe is not None
        probe.close()
        return probe.devices()

    return read_devices


def gpus(n_gpus, links=(), **options):
    return [
        StubGpu(uuid=f"GPU-{one}", links=tuple(b for a, b in links if a == one), **options)
        for one in range(n_gpus)
    ]


def islands(devices):
    return [device.island for device in devices]


def only(devices):
    (device,) = devices
    return device


# -- NVLink ----------------------------------------------------------------------------------


def test_pairs_with_a_bridge_are_islands(read):
    assert islands(read(*gpus(5, [(0, 3), (1, 4)]))) == [0, 1, None, 0, 1]


def test_gpus_on_an_nvswitch_are_one_island(read):
    assert islands(read(*gpus(8, combinations(range(8), 2)))) == [0] * 8


def test_gpus_that_are_linked_over_others_are_one_island(read):
    assert islands(read(*gpus(4, [(0, 1), (2, 3), (1, 2)]))) == [0] * 4


def test_gpus_without_nvlink_have_no_island(read):
    assert islands(read(*gpus(3))) == [None] * 3


@pytest.mark.parametrize("flag", ["no_p2p", "old_driver"])
def test_island_is_not_known_where_the_driver_does_not_tell(read, flag):
    assert islands(read(*gpus(2, [(0, 1)], flags=frozenset({flag})))) == [None, None]


def test_island_numbers_do_not_depend_on_which_gpus_are_visible(read):
    links = [(0, 1), (2, 3)]
    assert islands(read(*gpus(4, links), visible="2,3")) == [1, 1]


def test_lost_gpu_leaves_the_islands_of_others(read):
    first, second, third = gpus(3, [(0, 1), (1, 2)])
    lost = StubGpu(uuid="GPU-lost", flags=frozenset({"lost"}))
    assert islands(read(first, second, third, lost)) == [0, 0, 0]
    lost = StubGpu(uuid="GPU-1", flags=frozenset({"lost"}), links=(0, 2))
    assert islands(read(first, lost, third)) == [None, None]


def test_slices_have_no_nvlink_and_the_place_of_their_gpu(read):
    sliced = StubGpu(
        uuid="GPU-0",
        name="NVIDIA A100-SXM4-80GB",
        links=(1,),
        numa_nodes=frozenset({1}),
        slices=(StubSlice(uuid="MIG-1"), StubSlice(uuid="MIG-2")),
    )
    *slices, whole = read(sliced, StubGpu(uuid="GPU-1"))
    assert islands([*slices, whole]) == [None] * 3
    assert [one.numa_node for one in slices] == [1, 1]
    assert [one.gpu_name for one in slices] == ["NVIDIA A100-SXM4-80GB"] * 2
    assert whole.gpu_name is None


# -- memory and cores ------------------------------------------------------------------------


def test_numa_node_is_the_drivers(read):
    near_one, near_zero = gpus(1, numa_nodes=frozenset({1})), gpus(1, numa_nodes=frozenset({0}))
    assert only(read(*near_one)).numa_node == 1
    assert only(read(*near_zero)).numa_node == 0


@pytest.mark.parametrize(
    ("text", "expected"), [("1\n", 1), ("0\n", 0), ("-1\n", None), ("", None), (None, None)]
)
@pytest.mark.parametrize(
    "nodes", [frozenset(), frozenset({0, 1})], ids=["driver does not tell", "driver names two"]
)
def test_numa_node_is_else_that_of_linux(read, tmp_path, nodes, text, expected):
    if text is not None:
        device = tmp_path / "0001:3b:1f.0"
        device.mkdir()
        (device / "numa_node").write_text(text)
    gpu = StubGpu(uuid="GPU-0", numa_nodes=nodes, pci_address=(1, 0x3B, 0x1F))
    assert only(read(gpu)).numa_node == expected


def test_numa_node_and_cores_are_not_known_with_an_old_driver(read):
    every = {"numa_nodes": frozenset({1}), "cores": frozenset(USABLE[:1])}
    device = only(read(*gpus(1, flags=frozenset({"old_driver"}), **every)))
    assert (device.numa_node, device.cores) == (None, ())


@pytest.mark.skipif(len(USABLE) < 2 or USABLE[0] > 63, reason="needs two cores, one of the first")
def test_cores_are_the_nearest_that_may_be_used(read):
    near = frozenset({USABLE[0], 63} - set(USABLE[1:]))
    assert only(read(*gpus(1, cores=near))).cores == (USABLE[0],)


def test_cores_make_no_difference_where_all_are_near(read):
    assert only(read(*gpus(1, cores=frozenset(range(64)) | frozenset(USABLE[:1])))).cores == ()
    assert only(read(*gpus(1))).cores == ()


def test_gpu_lost_while_its_place_is_read_is_no_error(read, monkeypatch):
    def lost(*_):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)

    for name in ("nvmlDeviceGetP2PStatus", "nvmlDeviceGetCpuAffinity", "nvmlDeviceGetPciInfo"):
        monkeypatch.setattr(pynvml, name, lost)
    assert islands(read(*gpus(2, [(0, 1)]))) == [None, None]
