"""Whether NVIDIA's MPS is on: it lets the processes that share a GPU compute at the same time.

https://docs.nvidia.com/deploy/mps/
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import psutil

_DEFAULT_FOLDER = "/tmp/nvidia-mps"
#: The daemon is nvidia-cuda-mps-control; Linux truncates its name.
_SHORT_NAME = "nvidia-cuda-mps"


def process_names() -> Iterable[str]:
    """The names of all processes that can be seen."""
    return (process.info["name"] or "" for process in psutil.process_iter(["name"]))


def mps_is_running(
    environ: Mapping[str, str], *, names: Callable[[], Iterable[str]] = process_names
) -> bool:
    """Whether a program with this environment would find a running MPS daemon.

    Args:
        environ: May have `CUDA_MPS_PIPE_DIRECTORY`.
        names: Returns the names of processes; called only if the daemon's pipe exists, which also
            remains after a killed one.
    """
    folder = Path(environ.get("CUDA_MPS_PIPE_DIRECTORY") or _DEFAULT_FOLDER)
    try:
        has_pipe = (folder / "control").exists()
    except OSError:
        return False
    return has_pipe and any(name.startswith(_SHORT_NAME) for name in names())
