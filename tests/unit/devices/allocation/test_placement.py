"""A trial gets the devices that suit it, on machines as `nvidia-smi topo -m` shows them."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import a_gpu
from tuner.devices.allocation.placement import choose_devices, choose_shared
from tuner.devices.allocation.pool import DevicePool
from tuner.devices.allocation.width import ONE, Devices
from tuner.devices.device import Device

# All eight on one NVSwitch; its two processors show four NUMA nodes that have GPUs.
DGX_A100 = """
      GPU0  GPU1  GPU2  GPU3  GPU4  GPU5  GPU6  GPU7  CPU Affinity     NUMA Affinity
GPU0  X     NV12  NV12  NV12  NV12  NV12  NV12  NV12  48-63,176-191    3
GPU1  NV12  X     NV12  NV12  NV12  NV12  NV12  NV12  48-63,176-191    3
GPU2  NV12  NV12  X     NV12  NV12  NV12  NV12  NV12  16-31,144-159    1
GPU3  NV12  NV12  NV12  X     NV12  NV12  NV12  NV12  16-31,144-159    1
GPU4  NV12  NV12  NV12  NV12  X     NV12  NV12  NV12  112-127,240-255  7
GPU5  NV12  NV12  NV12  NV12  NV12  X     NV12  NV12  112-127,240-255  7
GPU6  NV12  NV12  NV12  NV12  NV12  NV12  X     NV12  80-95,208-223    5
GPU7  NV12  NV12  NV12  NV12  NV12  NV12  NV12  X     80-95,208-223    5
"""
# All eight on one NVSwitch, four at each processor.
HGX_H100 = """
      GPU0  GPU1  GPU2  GPU3  GPU4  GPU5  GPU6  GPU7  CPU Affinity     NUMA Affinity
GPU0  X     NV18  NV18  NV18  NV18  NV18  NV18  NV18  0-47,96-143      0
GPU1  NV18  X     NV18  NV18  NV18  NV18  NV18  NV18  0-47,96-143      0
GPU2  NV18  NV18  X     NV18  NV18  NV18  NV18  NV18  0-47,96-143      0
GPU3  NV18  NV18  NV18  X     NV18  NV18  NV18  NV18  0-47,96-143      0
GPU4  NV18  NV18  NV18  NV18  X     NV18  NV18  NV18  48-95,144-191    1
GPU5  NV18  NV18  NV18  NV18  NV18  X     NV18  NV18  48-95,144-191    1
GPU6  NV18  NV18  NV18  NV18  NV18  NV18  X     NV18  48-95,144-191    1
GPU7  NV18  NV18  NV18  NV18  NV18  NV18  NV18  X     48-95,144-191    1
"""
# The hybrid mesh: not every pair has a link, yet links lead from each to all.
DGX_1V = """
      GPU0  GPU1  GPU2  GPU3  GPU4  GPU5  GPU6  GPU7  CPU Affinity     NUMA Affinity
GPU0  X     NV1   NV1   NV2   NV2   SYS   SYS   SYS   0-19,40-59       0
GPU1  NV1   X     NV2   NV1   SYS   NV2   SYS   SYS   0-19,40-59       0
GPU2  NV1   NV2   X     NV2   SYS   SYS   NV1   SYS   0-19,40-59       0
GPU3  NV2   NV1   NV2   X     SYS   SYS   SYS   NV1   0-19,40-59       0
GPU4  NV2   SYS   SYS   SYS   X     NV1   NV1   NV2   20-39,60-79      1
GPU5  SYS   NV2   SYS   SYS   NV1   X     NV2   NV1   20-39,60-79      1
GPU6  SYS   SYS   NV1   SYS   NV1   NV2   X     NV2   20-39,60-79      1
GPU7  SYS   SYS   SYS   NV1   NV2   NV1   NV2   X     20-39,60-79      1
"""
# Bridges join two and two.
WORKSTATION = """
      GPU0  GPU1  GPU2  GPU3  CPU Affinity  NUMA Affinity
GPU0  X     NV4   NODE  NODE  0-63          0
GPU1  NV4   X     NODE  NODE  0-63          0
GPU2  NODE  NODE  X     NV4   0-63          0
GPU3  NODE  NODE  NV4   X     0-63          0
"""
# No NVLink.
PCIE_BOX = """
      GPU0  GPU1  GPU2  GPU3  GPU4  GPU5  GPU6  GPU7  CPU Affinity     NUMA Affinity
GPU0  X     PIX   NODE  NODE  SYS   SYS   SYS   SYS   0-31,64-95       0
GPU1  PIX   X     NODE  NODE  SYS   SYS   SYS   SYS   0-31,64-95       0
GPU2  NODE  NODE  X     PIX   SYS   SYS   SYS   SYS   0-31,64-95       0
GPU3  NODE  NODE  PIX   X     SYS   SYS   SYS   SYS   0-31,64-95       0
GPU4  SYS   SYS   SYS   SYS   X     PIX   NODE  NODE  32-63,96-127     1
GPU5  SYS   SYS   SYS   SYS   PIX   X     NODE  NODE  32-63,96-127     1
GPU6  SYS   SYS   SYS   SYS   NODE  NODE  X     PIX   32-63,96-127     1
GPU7  SYS   SYS   SYS   SYS   NODE  NODE  PIX   X     32-63,96-127     1
"""
# Five added over the years: the first alone at its processor.
ODD_BOX = """
      GPU0  GPU1  GPU2  GPU3  GPU4  CPU Affinity  NUMA Affinity
GPU0  X     SYS   SYS   SYS   SYS   8-15,24-31    1
GPU1  SYS   X     PHB   NODE  NODE  0-7,16-23     0
GPU2  SYS   PHB   X     NODE  NODE  0-7,16-23     0
GPU3  SYS   NODE  NODE  X     PHB   0-7,16-23     0
GPU4  SYS   NODE  NODE  PHB   X     0-7,16-23     0
"""
# Two types, no NVLink; a virtual machine that does not tell its NUMA nodes.
MIXED_BOX = """
      GPU0  GPU1  GPU2  GPU3  CPU Affinity  NUMA Affinity
GPU0  X     NODE  NODE  NODE  0-63          N/A
GPU1  NODE  X     NODE  NODE  0-63          N/A
GPU2  NODE  NODE  X     NODE  0-63          N/A
GPU3  NODE  NODE  NODE  X     0-63          N/A
"""
H200_AND_A100 = ("H200", "H200", "A100", "A100")


def machine(table: str, types: tuple[str, ...] = ()) -> tuple[Device, ...]:
    """The devices of a table: an island is what NVLinks (`NV…`) join, directly or not."""
    rows = [re.split(r"\s{2,}", line.strip()) for line in table.strip().splitlines()[1:]]
    devices = []
    for index, row in enumerate(rows):
        linked = [other for other, link in enumerate(row[1:-2]) if link.startswith("NV")]
        numa_node = None if row[-1] == "N/A" else int(row[-1])
        name = types[index] if types else "NVIDIA Fake"
        gpu = replace(a_gpu(index), numa_node=numa_node, name=name)
        # Joined to one that came before, it is of that one's island; tables here need no more.
        island = min([index, *(devices[o].island for o in linked if o < index)], default=None)
        devices.append(replace(gpu, island=island if linked else None))
    return tuple(devices)


def chosen(devices: tuple[Device, ...], n_devices: int, free: str = "") -> str:
    """Indexes of those that are chosen, with only some free, as in `0145`."""
    some = [device for device in devices if not free or str(device.index) in free]
    return "".join(str(device.index) for device in choose_devices(n_devices, some))


@pytest.mark.parametrize(
    ("table", "islands", "numa_nodes"),
    [
        (DGX_A100, [0] * 8, [3, 3, 1, 1, 7, 7, 5, 5]),
        (HGX_H100, [0] * 8, [0, 0, 0, 0, 1, 1, 1, 1]),
        (DGX_1V, [0] * 8, [0, 0, 0, 0, 1, 1, 1, 1]),
        (WORKSTATION, [0, 0, 2, 2], [0] * 4),
        (PCIE_BOX, [None] * 8, [0, 0, 0, 0, 1, 1, 1, 1]),
        (MIXED_BOX, [None] * 4, [None] * 4),
    ],
    ids=["dgx-a100", "hgx-h100", "dgx-1v", "workstation", "pcie-box", "mixed-box"],
)
def test_table_is_read_as_it_is_meant(table, islands, numa_nodes):
    devices = machine(table)
    assert [device.island for device in devices] == islands
    assert [device.numa_node for device in devices] == numa_nodes


@pytest.mark.parametrize(
    ("table", "n_devices", "free", "expected"),
    [
        pytest.param(DGX_A100, 8, "", "01234567", id="all-of-dgx-a100"),
        pytest.param(DGX_A100, 2, "0234567", "23", id="a-whole-numa-node-of-the-island"),
        pytest.param(DGX_A100, 4, "023457", "2345", id="few-numa-nodes-of-the-island"),
        pytest.param(DGX_A100, 3, "", "012", id="more-than-any-numa-node-has"),
        pytest.param(HGX_H100, 4, "", "0123", id="half-of-hgx"),
        pytest.param(HGX_H100, 4, "1234567", "4567", id="the-half-that-is-whole"),
        pytest.param(HGX_H100, 2, "1234567", "12", id="two-from-the-broken-half"),
        pytest.param(HGX_H100, 1, "1234567", "1", id="one-from-the-broken-half"),
        pytest.param(HGX_H100, 6, "", "012345", id="six-of-one-island"),
        pytest.param(DGX_1V, 4, "0124567", "4567", id="mesh-quad"),
        pytest.param(DGX_1V, 1, "01237", "7", id="mesh-single"),
        pytest.param(WORKSTATION, 2, "123", "23", id="a-bridged-pair"),
        pytest.param(WORKSTATION, 1, "123", "1", id="one-without-its-pair"),
        pytest.param(WORKSTATION, 3, "", "012", id="a-pair-and-one"),
        pytest.param(WORKSTATION, 3, "0123", "012", id="three-of-one-numa-node"),
        pytest.param(WORKSTATION, 2, "13", "13", id="no-pair-left"),
        pytest.param(PCIE_BOX, 4, "01234567", "0123", id="one-numa-node"),
        pytest.param(PCIE_BOX, 2, "0124567", "01", id="two-from-the-broken-numa-node"),
        pytest.param(PCIE_BOX, 1, "012367", "6", id="one-from-the-broken-numa-node"),
        pytest.param(PCIE_BOX, 4, "012567", "0125", id="no-numa-node-has-four"),
        pytest.param(ODD_BOX, 1, "", "0", id="the-one-that-stands-alone"),
        pytest.param(ODD_BOX, 4, "", "1234", id="the-four-together"),
        pytest.param(ODD_BOX, 9, "", "", id="more-than-there-are"),
        pytest.param(ODD_BOX, 2, "3", "", id="more-than-are-free"),
    ],
)
def test_choice_of_devices(table, n_devices, free, expected):
    assert chosen(machine(table), n_devices, free) == expected


@pytest.mark.parametrize(
    ("n_devices", "free", "expected"),
    [(2, "", "01"), (2, "123", "23"), (1, "123", "1"), (1, "012", "2"), (3, "", "012")],
)
def test_devices_of_one_type_go_together(n_devices, free, expected):
    assert chosen(machine(MIXED_BOX, H200_AND_A100), n_devices, free) == expected


def test_single_trial_takes_a_device_that_no_link_joins():
    linked = [replace(a_gpu(index), island=0) for index in (0, 1)]
    assert choose_devices(1, [*linked, a_gpu(2)]) == (a_gpu(2),)


def test_widest_trials_lie_on_few_islands():
    devices = tuple(replace(a_gpu(index), island=index // 4) for index in range(10))
    assert chosen(devices, 6, "03456789") == "034567"


def test_narrow_trials_leave_whole_islands_to_wide_ones():
    """Four single trials on two machines of four, then one that needs a machine."""
    devices = [replace(a_gpu(i), island=i // 4, numa_node=i // 2) for i in range(8)]
    pool = DevicePool(devices)
    singles = [pool.lease(ONE, "single") for _ in range(4)]
    assert [lease.devices[0].index for lease in singles if lease] == [0, 1, 2, 3]
    wide = pool.lease(Devices(n_devices=4), "wide")
    assert wide is not None
    assert {device.island for device in wide.devices} == {1}


def test_part_goes_where_least_room_is_left_the_lowest_index_first():
    rooms = [(5000, a_gpu(0)), (2000, a_gpu(3)), (2000, a_gpu(1))]
    assert choose_shared(rooms) == a_gpu(1)
    assert choose_shared([]) is None


LEVELS = ("island", "numa_node")


@given(
    places=st.lists(
        st.tuples(st.none() | st.integers(0, 3), st.none() | st.integers(0, 2)), max_size=12
    ),
    n_devices=st.integers(1, 8),
)
def test_choice_is_best_fit_at_the_finest_level_that_suffices(places, n_devices):
    free = [
        replace(a_gpu(index), island=island, numa_node=numa_node)
        for index, (island, numa_node) in enumerate(places)
    ]
    taken = choose_devices(n_devices, free)
    assert len(taken) == (n_devices if n_devices <= len(free) else 0)
    assert len(set(taken)) == len(taken)
    assert list(taken) == sorted(taken, key=lambda device: device.index)
    for level in LEVELS:
        sizes = sizes_of_groups(free, level)
        enough = [size for size in sizes.values() if size >= n_devices]
        if enough and n_devices > 1:
            assert {sizes[getattr(device, level)] for device in taken} == {min(enough)}
            assert len({getattr(device, level) for device in taken}) == 1
            return


def sizes_of_groups(devices: list[Device], level: str) -> dict[int, int]:
    sizes: dict[int, int] = defaultdict(int)
    for device in devices:
        if getattr(device, level) is not None:
            sizes[getattr(device, level)] += 1
    return sizes
