"""Location of GPUs in the machine, from NVML and Linux. Only a hint for placement.

Missing values are ignored, so nothing here is an error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from itertools import combinations
from pathlib import Path
from typing import TypeVar

import pynvml

from tuner.devices.nvidia.islands import nearest_cores, number_islands, numbers_in_mask

PCI_DEVICES = Path("/sys/bus/pci/devices")

_T = TypeVar("_T")
#: Words of 64 bits in a mask: 2048 cores, 64 NUMA nodes (both as many as Linux is built for).
_CORE_WORDS = 32
_NODE_WORDS = 1


def read_islands(gpus: Mapping[int, object]) -> dict[int, int]:
    """The NVLink island of each GPU that has a link to another one.

    GPUs on an NVSwitch can reach all others over NVLink, so they are one island.

    Args:
        gpus: NVML's handles by number, without GPUs in MIG mode: their slices have no NVLink.
    """
    pairs = combinations(sorted(gpus), 2)
    return number_islands(pair for pair in pairs if _is_linked(*(gpus[one] for one in pair)))


def read_numa_node(gpu: object, pci_devices: Path = PCI_DEVICES) -> int | None:
    """The host's NUMA node nearest to a GPU.

    The driver knows it even if the firmware did not report it to Linux
    (https://github.com/NVIDIA/cuCascade/pull/119). nvmlDeviceGetNumaNodeId is different: the node
    of a GPU's own memory, on machines such as GH200.
    """
    nodes = numbers_in_mask(_hint(lambda: _node_mask(gpu)) or ())
    return nodes[0] if len(nodes) == 1 else _numa_node_of_linux(gpu, pci_devices)


def read_cores(gpu: object) -> tuple[int, ...]:
    """The nearest cores that this process may use; empty if these are none or all."""
    mask = _hint(lambda: tuple(pynvml.nvmlDeviceGetCpuAffinity(gpu, _CORE_WORDS)))
    return nearest_cores(numbers_in_mask(mask or ()), os.sched_getaffinity(0))


def _is_linked(gpu: object, other: object) -> bool:
    index = pynvml.NVML_P2P_CAPS_INDEX_NVLINK
    status = _hint(lambda: int(pynvml.nvmlDeviceGetP2PStatus(gpu, other, index)))
    return status == int(pynvml.NVML_P2P_STATUS_OK)


def _node_mask(gpu: object) -> tuple[int, ...]:
    scope = pynvml.NVML_AFFINITY_SCOPE_NODE
    return tuple(pynvml.nvmlDeviceGetMemoryAffinity(gpu, _NODE_WORDS, scope))


def _numa_node_of_linux(gpu: object, pci_devices: Path) -> int | None:
    name = _hint(lambda: _pci_name(gpu))
    if name is None:
        return None
    try:
        node = int((pci_devices / name / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    # Linux reports -1 if there are no nodes, or the firmware does not report them.
    return node if node >= 0 else None


def _pci_name(gpu: object) -> str:
    """As Linux names it: `0000:3b:00.0`. GPUs are function 0 of theirs."""
    pci = pynvml.nvmlDeviceGetPciInfo(gpu)
    return f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0"


def _hint(read: Callable[[], _T]) -> _T | None:
    try:
        return read()
    except pynvml.NVMLError:
        return None
