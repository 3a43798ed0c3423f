"""Counts the processes that the kernel has killed because memory ran out.

The kernel counts them for each cgroup, whichever limit was reached: the cgroup's own, that of one
above it, or the host's (https://docs.kernel.org/admin-guide/cgroup-v2.html, `memory.events`). The
counter in `/proc/vmstat` is for the whole host, and rises for other containers too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_COUNT = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)
_V1_FILE, _V2_FILE = "memory.oom_control", "memory.events"


def count_oom_kills(root: Path = Path("/")) -> int:
    """OOM kills so far in this process's cgroup, else on the host; 0 if unknown.

    Args:
        root: Folder with `proc` and `sys`.
    """
    for file in (*_files_of_cgroup(root), root / "proc" / "vmstat"):
        if (count := _read(file)) is not None:
            return count
    return 0


def _files_of_cgroup(root: Path) -> Iterator[Path]:
    """Files of this cgroup, then of those above it: without the controller there is no counter."""
    mounts = root / "sys" / "fs" / "cgroup"
    try:
        lines = (root / "proc" / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            # In addition to v1 it has a folder of its own.
            for mount in (mounts, mounts / "unified"):
                yield from _upwards(mount, path, _V2_FILE)
        elif "memory" in controllers.split(","):
            # Not upwards: in v1 a counter does not include those below.
            yield mounts / controllers / path.lstrip("/") / _V1_FILE
            yield mounts / "memory" / path.lstrip("/") / _V1_FILE
            # A container sees its own cgroup there, whatever path the host knows it by.
            yield mounts / "memory" / _V1_FILE


def _upwards(mount: Path, path: str, name: str) -> Iterator[Path]:
    own = PurePosixPath("/") / path.lstrip("/")
    if ".." not in own.parts:  # Else it is outside of what this namespace shows.
        for each in (own, *own.parents):
            yield mount / each.relative_to("/") / name


def _read(file: Path) -> int | None:
    """None if the file does not exist, or has no such counter."""
    try:
        match = _COUNT.search(file.read_text())
    except OSError:
        return None
    return int(match[1]) if match else None
