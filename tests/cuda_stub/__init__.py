"""A CUDA driver on a machine with none: `cuda_stub.c` says what it can do."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

_SOURCE = Path(__file__).with_name("cuda_stub.c")


def compiled_cuda_stub(folder: Path) -> Path:
    """Compiles the library into a folder."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    library = folder / "libcuda_stub.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, _SOURCE], check=True)
    return library
