"""Lets the kernel kill a dispatcher's processes once both dispatcher and guardian are gone.

The guardian ends the workers of a dead dispatcher, but both may be killed at once. So these two,
the owners, hold a FIFO open for writing, and each worker holds it for reading, with SIGKILL for its
process group as its hang-up signal (F_SETOWN, F_SETSIG and O_ASYNC in fcntl(2)). This needs no
thread and no polling in a training process, and it also reaches the programs that it has started.
Linux only: other systems have no F_SETSIG, and such a worker ends when it next sends a message.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from io import FileIO
from pathlib import Path
from typing import NoReturn

NAME = "lifeline"


class Lifeline:
    """The owner's end of a lifeline.

    Args:
        folder: Folder of the FIFO; only this user may enter it.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        os.mkfifo(self.path, 0o600)
        # Also for reading, as else there would have to be a worker first.
        self._file = FileIO(os.open(self.path, os.O_RDWR | os.O_NONBLOCK))

    @property
    def fd(self) -> int:
        """Descriptor to pass to another owner."""
        return self._file.fileno()

    def close(self) -> None:
        """Releases it. Safe to call twice."""
        self._file.close()


def hold(path: str | Path, *, is_alone: bool = False) -> int | None:
    """Ends this process's group as soon as no owner is left.

    Args:
        path: Path of the FIFO.
        is_alone: Whether to end only this process.

    Returns:
        A descriptor: closing it ends the effect. None if the system does not support it.
    """
    if not hasattr(fcntl, "F_SETSIG"):
        return None
    # Each needs a description of its own: the signal and whom it is for belong to that.
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        # The guardian has cleared away behind a dispatcher that died before it told of this group.
        print(f"{path} is gone, and so is its dispatcher: this process ends.", file=sys.stderr)
        _end(is_alone=is_alone)
    fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid() if is_alone else -os.getpgrp())
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)
    try:
        os.read(fd, 1)
    except BlockingIOError:
        return fd
    # The owners were gone before the registration.
    _end(is_alone=is_alone)


def _end(*, is_alone: bool) -> NoReturn:
    if not is_alone:
        os.killpg(0, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a process outlived SIGKILL")
