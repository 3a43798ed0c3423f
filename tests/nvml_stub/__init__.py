"""A machine with any GPUs on a machine with none: NVML's library replaced by a small C file.

The unmodified pynvml reads it, so these tests see what our code does with NVML's answers,
not what NVIDIA's library does. `nvml_stub.c` says what is in it.

`nvml_stub` is for programs in a subprocess (`env=os.environ | nvml_stub.env`);
`loaded_nvml_stub` also puts it in front of pynvml in this process until the test ends. It
has no soname, so neither it nor a real NVML in the same process is taken for the other.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pynvml
import pytest

from tests.compiling import compile_library

_SOURCE = Path(__file__).with_name("nvml_stub.c")


@dataclass(frozen=True, kw_only=True)
class StubProcess:
    pid: int
    #: None where NVML does not tell.
    mib: int | None = 100
    utilization_pct: int = 0
    #: A client of MPS: NVML gives no utilization of its own.
    is_mps: bool = False


@dataclass(frozen=True, kw_only=True)
class StubSlice:
    """A MIG slice."""

    uuid: str
    name: str = "NVIDIA Stub MIG 1g.10gb"
    n_compute: int = 1
    n_gpu: int = 1
    total_mib: int = 9728
    used_mib: int = 12
    processes: tuple[StubProcess, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StubGpu:
    """A GPU. A figure of None is not supported by it."""

    uuid: str
    name: str = "NVIDIA Stub"
    total_mib: int = 81920
    used_mib: int | None = 3
    reserved_mib: int = 600
    utilization_pct: int | None = 0
    power_mw: int | None = 70_000
    temperature_c: int | None = 30
    sm_clock_mhz: int | None = 210
    memory_clock_mhz: int | None = 2619
    #: Bytes received and sent so far; with the flag `no_counters` bytes a second.
    pcie_bytes: tuple[int, int] | None = None
    #: KiB received and sent so far.
    nvlink_kib: tuple[int, int] | None = None
    #: Of the host's memory, nearest.
    numa_nodes: frozenset[int] = frozenset()
    #: Nearest, below 64.
    cores: frozenset[int] = frozenset()
    #: Domain, bus and device.
    pci_address: tuple[int, int, int] = (0, 0, 0)
    #: Numbers of the GPUs that NVLink joins it with; one direction is enough.
    links: tuple[int, ...] = ()
    #: Of: lost, unknown, no_memory_v2, no_processes, no_p2p, no_counters, old_driver.
    flags: frozenset[str] = frozenset()
    processes: tuple[StubProcess, ...] = ()
    slices: tuple[StubSlice, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NvmlStub:
    """The compiled library and the file that says what it answers."""

    library: Path
    state_file: Path
    folder: Path

    @property
    def env(self) -> dict[str, str]:
        """What to add to a subprocess's environment. Its own TMPDIR keeps device locks apart."""
        return {
            "LD_LIBRARY_PATH": str(self.library.parent),
            "FAKE_NVML": str(self.state_file),
            "TMPDIR": str(self.folder),
        }

    def write(self, gpus: Sequence[StubGpu], *, init_code: int = 0) -> None:
        """Changes the machine, for every program that looks at it, from its next call on."""
        text = "\n".join([f"init {init_code}", *(_gpu_text(gpu) for gpu in gpus)])
        new = self.state_file.with_suffix(".new")
        new.write_text(text + "\n")
        os.replace(new, self.state_file)


@pytest.fixture(scope="session")
def nvml_stub_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_library(_SOURCE, tmp_path_factory.mktemp("nvml_stub") / "libnvidia-ml.so.1")


@pytest.fixture
def nvml_stub(nvml_stub_library: Path, tmp_path: Path) -> NvmlStub:
    """The stub with no GPU yet: a driver with nothing to drive."""
    folder = tmp_path / "nvml"
    folder.mkdir()
    stub = NvmlStub(library=nvml_stub_library, state_file=folder / "gpus.txt", folder=folder)
    stub.write([])
    return stub


@pytest.fixture
def loaded_nvml_stub(nvml_stub: NvmlStub, monkeypatch: pytest.MonkeyPatch) -> NvmlStub:
    """The stub, seen by pynvml in this process."""
    monkeypatch.setenv("FAKE_NVML", str(nvml_stub.state_file))
    monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(nvml_stub.library)))
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    return nvml_stub


def _gpu_text(gpu: StubGpu) -> str:
    figures = [gpu.total_mib, gpu.used_mib, gpu.reserved_mib, gpu.utilization_pct]
    figures += [gpu.power_mw, gpu.temperature_c]
    flags = ",".join(sorted(gpu.flags)) or "-"
    line = f"gpu {gpu.uuid} {' '.join(map(_figure, figures))} {flags} {gpu.name}"
    links = [f"link {other}" for other in gpu.links]
    slices = [_slice_text(one) for one in gpu.slices]
    parts = [line, _near_text(gpu), _more_text(gpu)]
    return "\n".join([*parts, *links, *map(_process_text, gpu.processes), *slices])


def _near_text(gpu: StubGpu) -> str:
    masks = (sum(1 << number for number in numbers) for numbers in (gpu.numa_nodes, gpu.cores))
    return " ".join(["near", *(f"{number:x}" for number in (*masks, *gpu.pci_address))])


def _more_text(gpu: StubGpu) -> str:
    traffic = (*(gpu.pcie_bytes or (None, None)), *(gpu.nvlink_kib or (None, None)))
    figures = (gpu.sm_clock_mhz, gpu.memory_clock_mhz, *traffic)
    return f"more {' '.join(map(_figure, figures))}"


def _slice_text(one: StubSlice) -> str:
    figures = f"{one.n_compute} {one.n_gpu} {one.total_mib} {one.used_mib}"
    return "\n".join([f"mig {one.uuid} {figures} {one.name}", *map(_process_text, one.processes)])


def _process_text(process: StubProcess) -> str:
    figures = f"{_figure(process.mib)} {process.utilization_pct} {int(process.is_mps)}"
    return f"proc {process.pid} {figures}"


def _figure(value: int | None) -> str:
    return "-1" if value is None else str(value)
