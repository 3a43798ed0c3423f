"""Distinguishes the SIGTERM of a dispatcher from that of another program, such as a batch system.

A batch system's SIGTERM reaches every process of a job, and a worker takes it as "stop at your next
step". The dispatcher sends SIGTERM when the time for that is over. A signal carries no data, so the
dispatcher first creates a file in the folder of its sockets. Checking for a file is safe at any
time, including in a signal handler. The guardian, which does the same for all workers of a dead
dispatcher, imports nothing of the tuner and has its own copy of the name `ALL`.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from types import FrameType

from tuner.domain.attempt import AttemptId

ALL = "ends"

#: The folder that the fork server and its forks check; empty outside of one.
_folder: list[Path] = []
#: Processes that got an unannounced SIGTERM before they had a handler of their own.
_heard: set[int] = set()


def announce(folder: Path, attempt_id: AttemptId) -> None:
    """The next SIGTERM to processes of this attempt is the dispatcher's."""
    # Where it cannot be made, the processes have until SIGKILL.
    with contextlib.suppress(OSError):
        _file_of(folder, attempt_id).touch(mode=0o600)


def withdraw(folder: Path, attempt_id: AttemptId) -> None:
    """The attempt is over."""
    with contextlib.suppress(OSError):
        _file_of(folder, attempt_id).unlink(missing_ok=True)


def is_announced(folder: Path, attempt_id: AttemptId) -> bool:
    """Whether the dispatcher, or its guardian, has sent SIGTERM to processes of this attempt."""
    return os.path.exists(_file_of(folder, attempt_id)) or os.path.exists(folder / ALL)


def outlive_sigterm(folder: Path) -> None:
    """Makes the fork server and its forks ignore every SIGTERM except the guardian's.

    By a handler and not SIG_IGN, which child programs would inherit.
    """
    _folder[:] = [folder]
    signal.signal(signal.SIGTERM, _note)


def take_early_signal() -> bool:
    """Whether this process has got a SIGTERM, since the last call, without a handler of its own."""
    has_heard = os.getpid() in _heard
    _heard.discard(os.getpid())
    return has_heard


def _note(_number: int, _frame: FrameType | None) -> None:
    if os.path.exists(_folder[0] / ALL):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTERM)
    _heard.add(os.getpid())


def _file_of(folder: Path, attempt_id: AttemptId) -> Path:
    return folder / f"{ALL}-{attempt_id}"
