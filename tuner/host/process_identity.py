"""Which process a pid means: on which machine, since which boot, in which PID namespace.

A host name and a pid identify no process: containers with `--network host`, pods with `hostNetwork`
and cloned machines share the name, and each PID namespace counts its pids from 1. A start time in
seconds since the epoch moves whenever the clock is set (Linux derives it from the boot time). Boot
id, PID namespace and start ticks (proc_pid_stat(5), field 22) do not move.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Self

import psutil

_PROC = Path("/proc")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
#: Index after the program's name, which is in parentheses; the state is the first.
_START_TICKS_FIELD = 19
_ENDED_STATES = (b"Z", b"X", b"x")
_TICKS_PER_S = 100
_BOOT_KEY, _NAMESPACE_KEY, _TICKS_KEY = "boot_id", "pid_namespace", "start_ticks"


class Life(Enum):
    """Whether a process is alive, as far as this process can tell."""

    ALIVE = "alive"
    GONE = "gone"
    #: It belongs to another machine, boot or PID namespace, or is hidden from this user.
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """Identifies one process among all machines, boots and PID namespaces.

    An empty boot id or namespace is unknown; the pid is then not used.
    """

    host: str
    pid: int
    boot_id: str = ""
    #: Inode of the namespace, which is unique while the namespace exists.
    pid_namespace: str = ""
    #: Clock ticks from the boot to the start of the process.
    start_ticks: int = -1

    def shares_pids_with(self, other: ProcessIdentity) -> bool:
        """Whether a pid means the same process for both."""
        is_known = bool(self.boot_id and self.pid_namespace)
        return is_known and self._space == other._space

    @property
    def _space(self) -> tuple[str, str, str]:
        return self.host, self.boot_id, self.pid_namespace

    def facts(self) -> dict[str, str]:
        """Values that identify it in addition to host name and pid."""
        return {
            _BOOT_KEY: self.boot_id,
            _NAMESPACE_KEY: self.pid_namespace,
            _TICKS_KEY: str(self.start_ticks),
        }

    @classmethod
    def from_facts(cls, host: str, pid: int, facts: Mapping[str, object]) -> Self:
        """Parses `facts`; missing or malformed values are unknown."""
        ticks = str(facts.get(_TICKS_KEY, ""))
        return cls(
            host=host,
            pid=pid,
            boot_id=str(facts.get(_BOOT_KEY, "")) if ticks.isdecimal() else "",
            pid_namespace=str(facts.get(_NAMESPACE_KEY, "")),
            start_ticks=int(ticks) if ticks.isdecimal() else -1,
        )


def own_process() -> ProcessIdentity:
    """The identity of this process."""
    pid = os.getpid()
    return ProcessIdentity(
        host=socket.gethostname(),
        pid=pid,
        boot_id=_boot_id(),
        pid_namespace=pid_namespace(),
        start_ticks=_ticks_of_living(pid),
    )


def life_of(process: ProcessIdentity, *, here: ProcessIdentity) -> Life:
    """Whether a process is alive.

    Args:
        process: The process.
        here: Identity of this process, whose view of pids is used.
    """
    if not here.shares_pids_with(process):
        return Life.UNKNOWN
    if _is_hidden(process.pid):
        return Life.UNKNOWN
    return Life.ALIVE if start_ticks_of(process.pid) == process.start_ticks else Life.GONE


def start_ticks_of(pid: int) -> int | None:
    """Clock ticks from the boot to the start of a process; None if it has ended or is hidden."""
    if not _BOOT_ID.exists():
        return _ticks_by_psutil(pid)
    try:
        stat = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    fields = stat.rpartition(b")")[2].split()
    return None if fields[0] in _ENDED_STATES else int(fields[_START_TICKS_FIELD])


def _ticks_of_living(pid: int) -> int:
    ticks = start_ticks_of(pid)
    return -1 if ticks is None else ticks


def _ticks_by_psutil(pid: int) -> int | None:
    """Without procfs (macOS): the kernel stores a fixed start time."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return round(process.create_time() * _TICKS_PER_S)
    except psutil.NoSuchProcess:
        return None


def _is_hidden(pid: int) -> bool:
    """Whether there is such a process of another user, which the mount option hidepid hides."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return _BOOT_ID.exists() and not os.access(_PROC / str(pid) / "stat", os.R_OK)
    except (ProcessLookupError, OverflowError):
        return False
    return False


def _boot_id() -> str:
    with suppress(OSError):
        return _BOOT_ID.read_text().strip()
    with suppress(OSError, subprocess.SubprocessError):
        asked = ["sysctl", "-n", "kern.bootsessionuuid"]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=5.0, check=False)
        return done.stdout.strip()
    return ""


def pid_namespace() -> str:
    """Empty if /proc belongs to another namespace (`unshare --pid` without `--mount-proc`)."""
    if not _BOOT_ID.exists():
        return "none"
    try:
        if os.readlink(_PROC / "self") != str(os.getpid()):
            return ""
        return str((_PROC / "self/ns/pid").stat().st_ino)
    except OSError:
        return ""
