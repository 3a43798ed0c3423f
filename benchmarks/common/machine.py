"""Where a figure was measured: without this, it says nothing."""

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

_VERSIONS = """
import importlib.metadata as metadata, json, sys
found = {d.metadata["Name"].lower(): d.version for d in metadata.distributions()}
print(json.dumps({name: found.get(name, "not installed") for name in sys.argv[1:]}))
"""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The facts about this host that move the figures."""

    cores: int
    cpu_model: str
    memory_bytes: int
    kernel: str
    python: str

    def __str__(self) -> str:
        memory_gib = self.memory_bytes / 2**30
        return (
            f"{self.cores} cores ({self.cpu_model}), {memory_gib:.0f} GiB, "
            f"Linux {self.kernel}, Python {self.python}"
        )


def this_machine() -> Machine:
    return Machine(
        cores=len(os.sched_getaffinity(0)),
        cpu_model=_cpu_model(Path("/proc/cpuinfo").read_text()),
        memory_bytes=psutil.virtual_memory().total,
        kernel=platform.release(),
        python=platform.python_version(),
    )


def package_versions(python: Path, packages: Sequence[str]) -> dict[str, str]:
    """The versions in another interpreter's environment."""
    answer = subprocess.run(
        [str(python), "-c", _VERSIONS, *packages], check=True, capture_output=True, text=True
    )
    return {str(name): str(version) for name, version in json.loads(answer.stdout).items()}


def commit_of(root: Path) -> str:
    """The commit that was measured; `-dirty` where the checkout differs from it."""
    answer = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
        cwd=root,
        capture_output=True,
        text=True,
    )
    return answer.stdout.strip() or "unknown"


def _cpu_model(cpuinfo: str) -> str:
    names = (
        line.partition(":")[2].strip() for line in cpuinfo.splitlines() if "model name" in line
    )
    return next(names, platform.machine())
