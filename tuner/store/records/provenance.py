"""Data needed to reproduce a run: host, package versions, git commit."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from tuner.host.distribution import DISTRIBUTION
from tuner.host.process_identity import ProcessIdentity, own_process

#: Imported packages, each with the name of its distribution.
_DISTRIBUTIONS = {
    "tuner": DISTRIBUTION,
    "optuna": "optuna",
    "torch": "torch",
    "numpy": "numpy",
    "sqlalchemy": "sqlalchemy",
}
_GIT_TIMEOUT_S = 5.0
#: Set for dispatchers whose code is a snapshot: its hash and its commit.
ENV_CODE = "TUNER_CODE"
ENV_COMMIT = "TUNER_CODE_COMMIT"
ENV_IS_DIRTY = "TUNER_CODE_IS_DIRTY"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """This machine, and this process on it."""

    process: ProcessIdentity
    n_cores: int
    memory_bytes: int
    #: As the machine's clock was set at the start; for the record only. Seconds since the epoch.
    process_created_at_s: float

    @property
    def name(self) -> str:
        return self.process.host

    @property
    def pid(self) -> int:
        return self.process.pid


@dataclass(frozen=True, slots=True, kw_only=True)
class GitState:
    """Git state of the user's code; None if its folder is no repository."""

    commit: str | None = None
    is_dirty: bool | None = None
    #: Hash of the running snapshot; None if the working tree itself runs.
    snapshot: str | None = None


def host_facts() -> HostFacts:
    return HostFacts(
        process=own_process(),
        n_cores=os.cpu_count() or 1,
        memory_bytes=psutil.virtual_memory().total,
        process_created_at_s=psutil.Process().create_time(),
    )


def package_versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package, distribution in _DISTRIBUTIONS.items():
        try:
            versions[package] = importlib.metadata.version(distribution)
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


def code_state(folder: Path, environ: Mapping[str, str]) -> GitState:
    """Like `git_state` for a dispatcher, whose code may be a snapshot."""
    snapshot = environ.get(ENV_CODE)
    if not snapshot:
        return git_state(folder)
    is_dirty = {"1": True, "0": False}.get(environ.get(ENV_IS_DIRTY, ""))
    commit = environ.get(ENV_COMMIT) or None
    return GitState(commit=commit, is_dirty=is_dirty, snapshot=snapshot)


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
