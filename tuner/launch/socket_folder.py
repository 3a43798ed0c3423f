"""Folders for the sockets of one process: private, short enough, and not cleared away."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

#: A socket's path may have 107 characters (man 7 unix), and its own name needs some.
_MAX_CHARACTERS = 70


class SocketFolder:
    """A new private folder that goes when it is closed.

    It is locked as long as that: a system that clears away what has been unchanged for days in /tmp
    leaves alone what somebody has locked (flock(2); tmpfiles.d(5), "Age").
    """

    def __init__(self) -> None:
        self.path = private_folder()
        self._lock: int | None = os.open(self.path, os.O_RDONLY)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def close(self) -> None:
        """Removes it. Safe to call twice."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        shutil.rmtree(self.path, ignore_errors=True)


def private_folder() -> Path:
    """A new folder that only this user may enter, in TMPDIR unless that is too deep."""
    base = tempfile.gettempdir()
    if len(base) > _MAX_CHARACTERS:
        base = "/tmp"
    return Path(tempfile.mkdtemp(prefix="tuner-", dir=base))
