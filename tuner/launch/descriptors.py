"""File descriptors: how many the dispatcher and its fork server need, and the limit.

Most systems limit a process to 1024 and let it raise the limit (setrlimit(2)). 1024 protects
programs that use select(2), which fails above it; so trials' processes get the old limit back.
"""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator

from tuner.errors import ConfigError

#: In the fork server's environment, for its workers: the soft limit with which this process
#: started.
ENV_SOFT_LIMIT = "TUNER_SOFT_DESCRIPTOR_LIMIT"
#: Above it some programs take minutes to close all that they might have inherited.
_MOST = 65536
#: The database, the channel, logs, telemetry, the processes that are forked ahead.
_FOR_ITSELF = 128
#: Per process of a trial: its pipe, its exit, its connection and that of a script below it.
_FOR_A_WORKER = 4


@contextlib.contextmanager
def raised_limit() -> Iterator[int]:
    """Raises this process's soft limit as a context manager; yields the old one."""
    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if (after := _highest(hard)) > before >= 0:
        resource.setrlimit(resource.RLIMIT_NOFILE, (after, hard))
    try:
        yield before
    finally:
        # What is open above it stays open.
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, hard))


def give_back_limit(soft: int) -> None:
    """Restores the limit of the user's shell in this process."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def check_descriptors(n_workers: int, *, asked: str, file: str) -> None:
    """Refuses devices that need more descriptors than this process may have.

    Args:
        n_workers: Maximum number of simultaneous trial processes.
        asked: The devices in the study file, as text to follow the key.
        file: The study file.

    Raises:
        ConfigError: With the number needed, and what to do.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return
    limit = max(soft, _highest(hard))
    needed = _FOR_ITSELF + _FOR_A_WORKER * n_workers
    if needed > limit:
        n_possible = max(1, (limit - _FOR_ITSELF) // _FOR_A_WORKER)
        raise ConfigError(
            f"{asked}, for which {needed:,} open files are needed, but this process may have "
            f"{limit:,} at most. Run at most {n_possible} trials at a time here, or raise the hard "
            "limit (see it with: ulimit -Hn; set it with nofile in /etc/security/limits.conf, "
            "LimitNOFILE= of systemd, or --ulimit nofile= of a container).",
            file=file,
            key="devices",
        )


def _highest(hard: int) -> int:
    return _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
