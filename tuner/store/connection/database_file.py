"""Detects whether an open SQLite file was replaced, and copies its content.

An open file stays readable and writable after it was deleted or replaced: transactions succeed and
are lost. The check compares device and inode of the file, its write-ahead log and its index, and
whether another program wrote to the file (`cp` keeps the inode).

In WAL mode only a checkpoint writes to the file, and it records this in the index: before, the
number of frames that it will write; afterwards, the number of those written
(https://sqlite.org/walformat.html, 2.2). A file that changed without this was written by a program
other than SQLite.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple

_SIDE_FILES = ("-wal", "-shm")
_HEADER_BYTES = 100
#: Positions in the index: salts of the log, frames in the file, frames to be written.
_SALTS, _WRITTEN, _INTENDED = slice(32, 40), slice(96, 100), slice(128, 132)
_INDEX_BYTES = 132
_BUSY_TIMEOUT_S = 30.0


class FileId(NamedTuple):
    """Identifies a file independently of its path."""

    device: int
    inode: int


class _Checkpoint(NamedTuple):
    """Progress of checkpoints of the write-ahead log."""

    salts: bytes
    n_written: bytes
    n_intended: bytes

    @property
    def is_under_way(self) -> bool:
        return self.n_written != self.n_intended


class _Content(NamedTuple):
    """Values that change when a file is written."""

    size_bytes: int
    header: bytes


class FileWatch:
    """Watches the file of an open SQLite database in WAL mode.

    Its own connection stays open as long as this object, so that the log and its index remain the
    same files, and committed data can be copied after the file is gone.

    Args:
        path: The file, which other connections of this process have open.

    Raises:
        sqlite3.Error: If it cannot be read.
        OSError: If it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection = sqlite3.connect(
            path, timeout=_BUSY_TIMEOUT_S, check_same_thread=False, isolation_level=None
        )
        self._connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
        real = path.resolve()
        self._paths = (path, *(real.with_name(real.name + end) for end in _SIDE_FILES))
        # To close a descriptor of the file would drop all of SQLite's locks on it
        # (https://sqlite.org/howtocorrupt.html, 2.2): these stay open until `close`.
        self._fds = [os.open(each, os.O_RDONLY | os.O_CLOEXEC) for each in (path, self._paths[2])]
        self._ids = [_id_of(each) for each in self._paths]
        self._mtime_ns = -1
        self._content = self._read_content()
        self._checkpoint = self._read_checkpoint()
        #: Whether the open file holds all committed data; false after another program wrote to it.
        self.is_intact = True

    def problem(self) -> str:
        """What happened to the file, as text; empty if it is the open one."""
        for path, before in zip(self._paths, self._ids, strict=True):
            found = _id_of(path)
            if found is None and not path.parent.is_dir():
                return f"its folder {path.parent} was removed"
            if found is None:
                return f"{path} was deleted or moved"
            if found not in (before, _NOT_KNOWN):
                return f"{path} was replaced by another file"
        if self._was_written_into():
            self.is_intact = False
            return f"{self.path} was overwritten by another program"
        return ""

    def copy_to(self, target: Path) -> None:
        """Copies all that was committed into a new file.

        Raises:
            sqlite3.Error: If the open file cannot be read or the new one cannot be written.
        """
        with closing(sqlite3.connect(target)) as copy:
            self._connection.backup(copy)

    def leave_as_it_is(self, *others: object) -> None:
        """Never closes its connection, nor others: SQLite would write its log into a foreign file.

        The log is removed, which the next program to open the file would write into it.

        Args:
            others: What holds further connections.
        """
        for each in (self._connection, *others):
            _keep_for_ever(each)
        self._fds.clear()
        for path, before in list(zip(self._paths, self._ids, strict=True))[1:]:
            if _id_of(path) == before:
                with suppress(OSError):
                    path.unlink()

    def close(self) -> None:
        """To be called once no other connection of this process is open. Safe to call twice."""
        if self.is_intact:
            self._connection.close()
        while self._fds:
            os.close(self._fds.pop())

    def _was_written_into(self) -> bool:
        before = self._read_checkpoint()
        mtime_ns = os.fstat(self._fds[0]).st_mtime_ns
        if before.is_under_way:
            return False
        if mtime_ns == self._mtime_ns:
            self._checkpoint = before
            return False
        content = self._read_content()
        if self._read_checkpoint() != before:
            return False  # Looked at again the next time.
        is_foreign = content != self._content and before == self._checkpoint
        self._mtime_ns, self._content, self._checkpoint = mtime_ns, content, before
        return is_foreign

    def _read_content(self) -> _Content:
        size_bytes = os.fstat(self._fds[0]).st_size
        return _Content(size_bytes, os.pread(self._fds[0], _HEADER_BYTES, 0))

    def _read_checkpoint(self) -> _Checkpoint:
        index = os.pread(self._fds[1], _INDEX_BYTES, 0)
        return _Checkpoint(index[_SALTS], index[_WRITTEN], index[_INTENDED])


_NOT_KNOWN = FileId(-1, -1)


def _id_of(path: Path) -> FileId | None:
    """None if there is no file."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return _NOT_KNOWN
    return FileId(found.st_dev, found.st_ino)


def places_for_copies(path: Path) -> Iterator[Path]:
    """Unused file names: next to the database, else in the current or a temporary folder."""
    folders = [path.parent]
    with suppress(OSError):
        folders.append(Path.cwd())
    folders.append(Path(tempfile.gettempdir()))
    for folder in folders:
        if folder.is_dir():
            names = (f"{path.stem}.rescued{f'-{n}' if n else ''}{path.suffix}" for n in count())
            yield next(folder / name for name in names if not os.path.lexists(folder / name))


def _keep_for_ever(connection: object) -> None:
    """Lets Python never free an object, not even at its end."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
