"""What is needed to do the same again: host, package versions, git commit."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

import psutil

_PACKAGES = ("tuner", "optuna", "torch", "numpy", "sqlalchemy")
_GIT_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """This machine, and this process on it."""

    name: str
    n_cores: int
    memory_bytes: int
    pid: int
    #: Tells this process from a later one with its pid; seconds since the epoch.
    process_created_at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GitState:
    """Where the user's code stood; None where its folder is no repository."""

    commit: str | None = None
    is_dirty: bool | None = None


def host_facts() -> HostFacts:
    return HostFacts(
        name=socket.gethostname(),
        n_cores=os.cpu_count() or 1,
        memory_bytes=psutil.virtual_memory().total,
        pid=os.getpid(),
        process_created_at_s=psutil.Process().create_time(),
    )


def is_alive(pid: int, process_created_at_s: float) -> bool:
    """Whether that very process (not a later one with its pid) is still there."""
    try:
        process = psutil.Process(pid)
        is_same = abs(process.create_time() - process_created_at_s) < 1.0
        return is_same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def package_versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def git_state(folder: Path) -> GitState:
    """The commit that is checked out in a folder, and whether files differ from it."""
    commit = _git(folder, "rev-parse", "HEAD")
    if not commit:
        return GitState()
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return GitState(commit=commit, is_dirty=None if changes is None else bool(changes))


def _git(folder: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words],
            capture_output=True,
            text=True,
            timeout=_GIT_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
