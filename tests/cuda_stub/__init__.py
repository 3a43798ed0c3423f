"""A CUDA driver on a machine with none: `cuda_stub.c` says what it can do."""

from __future__ import annotations

from pathlib import Path

from tests.compiling import compile_library

_SOURCE = Path(__file__).with_name("cuda_stub.c")


def compiled_cuda_stub(folder: Path, name: str = "libcuda_stub.so") -> Path:
    """Compiles the library into a folder."""
    return compile_library(_SOURCE, folder / name)
