"""The dispatcher's client of the transfer process. It never blocks."""

from __future__ import annotations

import itertools
import os
import select
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import psutil

from tuner.checkpoints.object_store.address import StoreAddress
from tuner.checkpoints.object_store.orders import Answer, Order, Work

_MODULE = "tuner.checkpoints.object_store.uploader"
_ROOT = Path(__file__).resolve().parents[3]
_MAX_BYTES = 65536
_END_S = 5.0
#: After a process that has ended by itself, or was killed; twice that after the next.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0


class Groups(Protocol):
    """Ends process groups should the dispatcher die."""

    def watch(self, group: int) -> None: ...

    def release(self, group: int) -> None: ...


class Transfers:
    """Requests in flight, and their replies.

    Args:
        address: Address of the store.
        links: Folder in which the transfer processes of this study hold files that they upload.
        log: Log of the process's own output.
        groups: Ends the process if the dispatcher dies.
        now_s: The monotonic clock, in seconds.
    """

    def __init__(
        self,
        address: StoreAddress,
        links: Path,
        log: Path,
        groups: Groups | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = address
        self._links = links / f"{socket.gethostname()}-{os.getpid()}"
        self._log = log
        self._groups = groups
        self._now_s = now_s
        self._ids = itertools.count(1)
        self._open: dict[int, Order] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._read_end = -1
        self._buffer = bytearray()
        self._pause_s = _FIRST_PAUSE_S
        self._may_start_at_s = 0.0
        _remove_links_of_dead(links)

    @property
    def n_open(self) -> int:
        """Orders without an answer."""
        return len(self._open)

    @property
    def pid(self) -> int | None:
        """Id of the process; None if none runs."""
        return None if self._process is None else self._process.pid

    def send(
        self,
        work: Work,
        key: str,
        path: Path | str = "",
        *,
        written_at_ns: int = 0,
        size_bytes: int = 0,
    ) -> int:
        """Sends a request; returns the id that its reply will have."""
        order = Order(
            id=next(self._ids),
            work=work,
            key=key,
            path=str(path),
            written_at_ns=written_at_ns,
            size_bytes=size_bytes,
        )
        self._open[order.id] = order
        self._tell(order)
        return order.id

    def take(self) -> list[Answer]:
        """Answers since the last call. A process that has ended is started again."""
        answers = []
        if self._process is not None:
            is_over = self._process.poll() is not None
            answers = self._read()
            if is_over:
                self._forget_process()
        if answers:
            self._pause_s = _FIRST_PAUSE_S
        known = [each for each in answers if self._open.pop(each.id, None) is not None]
        if self._process is None and self._open and self._now_s() >= self._may_start_at_s:
            for order in list(self._open.values()):
                self._tell(order)
        return known

    def wait(self, patience_s: float) -> None:
        """Until there is an answer, for a while at most."""
        if self._read_end >= 0:
            select.select([self._read_end], [], [], patience_s)
        else:
            time.sleep(min(patience_s, 0.05))

    def close(self) -> None:
        """Ends the process. Safe to call twice."""
        if (process := self._process) is None:
            return
        with suppress(OSError):
            assert process.stdin is not None
            process.stdin.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_END_S)
        self._forget_process()
        shutil.rmtree(self._links, ignore_errors=True)

    def _tell(self, order: Order) -> None:
        if self._process is None:
            if self._now_s() < self._may_start_at_s:
                return  # `take` sends it once there is a process again.
            try:
                self._process = self._start()
            except OSError:
                self._put_off_start()
                return
        # Where the process was killed just now, the next one gets the order.
        with suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.write(order.to_line())
            self._process.stdin.flush()

    def _start(self) -> subprocess.Popen[bytes]:
        read_end, write_end = os.pipe()
        address = self._address
        words = [address.scheme, address.bucket, address.prefix, str(self._links), str(write_end)]
        paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        try:
            with self._log.open("ab") as log:
                process = subprocess.Popen(
                    [sys.executable, "-P", "-m", _MODULE, *words],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=[write_end],
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                    start_new_session=True,
                )
        except OSError:
            os.close(read_end)
            raise
        finally:
            os.close(write_end)
        os.set_blocking(read_end, False)
        self._read_end = read_end
        self._buffer.clear()
        if self._groups is not None:
            self._groups.watch(process.pid)
        return process

    def _read(self) -> list[Answer]:
        while select.select([self._read_end], [], [], 0)[0]:
            read = os.read(self._read_end, _MAX_BYTES)
            if not read:
                break
            self._buffer += read
        *lines, rest = self._buffer.split(b"\n")
        self._buffer = bytearray(rest)
        return [Answer.from_line(bytes(line)) for line in lines]

    def _forget_process(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if self._groups is not None:
            self._groups.release(process.pid)
        with suppress(OSError):
            assert process.stdin is not None
            process.stdin.close()
        os.close(self._read_end)
        self._read_end = -1
        self._put_off_start()

    def _put_off_start(self) -> None:
        self._may_start_at_s = self._now_s() + self._pause_s
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)


def _remove_links_of_dead(links: Path) -> None:
    """Removes files of this host's dispatchers that were killed during an upload."""
    for folder in links.glob(f"{socket.gethostname()}-*"):
        pid = folder.name.rpartition("-")[2]
        if pid.isdigit() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)
