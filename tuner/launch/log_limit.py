"""Keeps the logs of attempts below a limit: the first and the last part of each remain.

A program writes to its log directly (its file descriptors 1 and 2), so that no output of it or of a
C library can be lost, and training never waits for a reader. The middle of a log that has grown too
long is therefore released to the file system while the program keeps writing (FALLOC_FL_PUNCH_HOLE
of fallocate(2)), which moves no other bytes. When the program has ended, the file is rewritten
without the hole. On macOS and file systems without holes, the end of the log is copied and the file
is truncated when it does not grow for a moment, or is far too long; output between the copy and the
truncation is lost there.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: The page size of most machines; a hole begins and ends at a multiple of it.
_BLOCK = 4096
_COPY_BYTES = 1024 * 1024
_LOOK_EVERY_S = 0.5
#: Without holes: a log that does not grow for so long may be cut.
_QUIET_S = 0.02
#: Without holes: a log this many times too long is truncated even while it grows.
_HURRY = 4
#: At the end, for logs that are still to be written again.
_CLOSE_S = 30.0
#: In linux/falloc.h: FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE.
_PUNCH_HOLE = 0x01 | 0x02


@dataclass(slots=True, kw_only=True)
class _Log:
    path: Path
    #: End of the hole; 0 if there is none.
    hole_end: int = 0
    n_left_out: int = 0
    has_ended: bool = False


class LogLimit:
    """Checks the logs of running attempts at intervals, in a thread of its own.

    The folder may be on a network disk that hangs, which must not block the dispatcher.

    Args:
        max_bytes: Maximum size of one log.
    """

    def __init__(self, max_bytes: int) -> None:
        self._limit = _Limit(max_bytes)
        self._logs: dict[Path, _Log] = {}
        self._lock = threading.Lock()
        self._is_closing = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, path: Path) -> None:
        """Starts limiting a log, which need not exist yet."""
        with self._lock:
            self._logs[path] = _Log(path=path)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="log-limit", daemon=True)
            self._thread.start()

    def release(self, path: Path) -> None:
        """Marks a log as complete."""
        with self._lock:
            if log := self._logs.get(path):
                log.has_ended = True

    def close(self) -> None:
        """Waits until the logs that have ended are done. Safe to call twice."""
        self._is_closing.set()
        if self._thread is not None:
            self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._is_closing.wait(_LOOK_EVERY_S)
            with self._lock:
                logs = list(self._logs.values())
                for log in logs:
                    if log.has_ended:
                        del self._logs[log.path]
            for log in logs:
                # A disk that is full or away costs a log its limit, and nothing else.
                with contextlib.suppress(OSError):
                    self._limit.apply(log)


class _Limit:
    """Limits one log."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._head_bytes = max(_BLOCK, max_bytes // 2 // _BLOCK * _BLOCK)
        self._tail_bytes = max(_BLOCK, max_bytes - self._head_bytes)

    def apply(self, log: _Log) -> None:
        size = self._size_of(log)
        if size - max(0, log.hole_end - self._head_bytes) > self._max_bytes:
            with open(log.path, "r+b", buffering=0) as file:
                self._shorten(file.fileno(), log, size)
        if log.has_ended and log.hole_end:
            self._write_anew(log)

    def _size_of(self, log: _Log) -> int:
        try:
            size = log.path.stat().st_size
        except FileNotFoundError:
            return 0
        if size < log.hole_end:  # The program has truncated it.
            log.hole_end = 0
        return size

    def _shorten(self, fd: int, log: _Log, size: int) -> None:
        hole_end = (size - self._tail_bytes) // _BLOCK * _BLOCK
        begin = max(log.hole_end, self._head_bytes)
        if hole_end <= begin:
            return
        if _punch(fd, begin, hole_end - begin):
            log.n_left_out += hole_end - begin
            log.hole_end = hole_end
            os.pwrite(fd, self._note(log.n_left_out), self._head_bytes)
        else:
            self._cut(fd, log)

    def _cut(self, fd: int, log: _Log) -> None:
        """Without holes: copies the tail, truncates, and appends the tail.

        Output between the copy and the truncation is lost, so this waits for a quiet moment, but
        not without a limit.
        """
        size = os.fstat(fd).st_size
        time.sleep(_QUIET_S)
        if os.fstat(fd).st_size != size and size < _HURRY * self._max_bytes:
            return
        # Half of the tail, as the log would else be copied again at the next look.
        begin, tail = size - self._tail_bytes // 2, bytearray()
        while chunk := os.pread(fd, _COPY_BYTES, begin + len(tail)):
            tail += chunk
        os.ftruncate(fd, self._head_bytes)
        log.n_left_out += begin - self._head_bytes
        with open(log.path, "ab", buffering=0) as end:
            end.write(self._note(log.n_left_out) + bytes(tail))

    def _note(self, n_bytes: int) -> bytes:
        return (
            f"\n[tuner] {n_bytes:,} bytes are left out here: a log keeps its first and its last "
            f"part, {self._max_bytes:,} bytes together (trial.max_log).\n"
        ).encode()

    def _write_anew(self, log: _Log) -> None:
        new = log.path.with_name(f".{log.path.name}.partial")
        try:
            with log.path.open("rb") as old, new.open("wb") as file:
                file.write(old.read(self._head_bytes))
                file.write(self._note(log.n_left_out))
                old.seek(log.hole_end)
                while chunk := old.read(_COPY_BYTES):
                    file.write(chunk)
            new.chmod(log.path.stat().st_mode & 0o777)
            new.replace(log.path)
        except OSError:
            new.unlink(missing_ok=True)
            raise


def read_log(path: Path, *, until: int | None = None) -> Iterator[bytes]:
    """A log in pieces, without the hole if it has not been rewritten.

    Args:
        path: Path of the log.
        until: Bytes from its beginning; None for all that is there now.

    Raises:
        OSError: If it cannot be read.
    """
    with path.open("rb", buffering=0) as file:
        fd, size = file.fileno(), os.fstat(file.fileno()).st_size
        size = size if until is None else min(size, until)
        position = 0
        while position < size:
            begin, end = _next_data(fd, position, size)
            is_whole = begin == 0 and end == size
            os.lseek(fd, begin, os.SEEK_SET)
            while begin < end and (chunk := os.read(fd, min(_COPY_BYTES, end - begin))):
                begin += len(chunk)
                # What is left of a block of which a part was given back.
                yield chunk if is_whole else chunk.replace(b"\0", b"")
            position = end


def _next_data(fd: int, position: int, size: int) -> tuple[int, int]:
    """The next data part of a file: start and end."""
    try:
        begin = os.lseek(fd, position, os.SEEK_DATA)
        return begin, min(size, os.lseek(fd, begin, os.SEEK_HOLE))
    except (OSError, AttributeError) as error:  # macOS's Python has no such constants everywhere.
        if isinstance(error, OSError) and error.errno == errno.ENXIO:
            return size, size  # Nothing but a hole follows.
        return position, size


def _punch(fd: int, begin: int, n_bytes: int) -> bool:
    """Releases a part of a file; False if that is not supported.

    Raises:
        OSError: If the disk has a fault.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    fallocate = getattr(libc, "fallocate", None)
    if fallocate is None:
        return False
    fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    if fallocate(fd, _PUNCH_HOLE, begin, n_bytes) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EPERM):
        return False
    raise OSError(code, os.strerror(code))
