"""Folders for the sockets of one process: private, short enough, and not cleared away."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
import tempfile
import time
from pathlib import Path

from tuner.launch.local_host.lifeline import NAME as LIFELINE

#: A socket's path may have 107 characters (man 7 unix), and its own name needs some.
_MAX_CHARACTERS = 70
_PREFIX = "tuner-"
#: As `tempfile.mkdtemp` names it.
_NAME = re.compile(r"tuner-[a-z0-9_]{8}")
#: From making a folder to locking it, and much more.
_LEFT_AFTER_S = 60.0


class SocketFolder:
    """A new private folder that is removed when it is closed.

    It is locked meanwhile: a cleaner of old files in /tmp skips what is locked (flock(2);
    tmpfiles.d(5), "Age"). The lock also identifies the folders that killed starts have left, which
    are removed here.
    """

    def __init__(self) -> None:
        remove_left_behind(Path(_base()))
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
    return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_base()))


def remove_left_behind(base: Path) -> None:
    """Removes the folders of this user's processes that were killed together with their guardian.

    Only a folder that looks like the tuner's, is not locked, and has been unchanged for a minute:
    another process may be about to lock a new one. Errors are ignored.
    """
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(base)):
            if _NAME.fullmatch(entry.name):
                with contextlib.suppress(OSError):
                    _remove_if_left(Path(entry.path))


def _remove_if_left(folder: Path) -> None:
    """Removes a folder unless it is in use.

    Raises:
        OSError: If it is locked, or no folder, or another user's.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        is_ours = found.st_uid == os.getuid() and stat.S_IMODE(found.st_mode) == 0o700
        if not is_ours or time.time() - found.st_mtime < _LEFT_AFTER_S:
            return
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        names = os.listdir(fd)
        # Made before the rest: a folder without it is another program's, whatever its name is.
        if LIFELINE in names and all(_is_socket_or_pipe(fd, name) for name in names):
            for name in names:
                os.unlink(name, dir_fd=fd)
            folder.rmdir()
    finally:
        os.close(fd)


def _is_socket_or_pipe(folder: int, name: str) -> bool:
    mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    return stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode)


def _base() -> str:
    base = tempfile.gettempdir()
    return "/tmp" if len(base) > _MAX_CHARACTERS else base
