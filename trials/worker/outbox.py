"""Queue of unsent messages: training must not wait for a dispatcher that does not read.

There is no thread: messages that could not be sent at once are sent with a later call, or at the
end.
"""

from __future__ import annotations

import os
import select
import socket
import sys
from collections import deque
from dataclasses import dataclass

from tuner.domain.messages import MAX_LINE_BYTES

#: Maximum size of the queue in bytes. Above it the oldest reports are dropped: some 100,000 fit.
MAX_UNSENT_BYTES = 2 * MAX_LINE_BYTES


@dataclass(slots=True, kw_only=True)
class _Waiting:
    line: bytes
    is_report: bool
    n_sent: int = 0


class Outbox:
    """The sending half of a connection.

    Args:
        connection: A connected stream socket.

    Raises:
        OSError: From every method that sends, if the other end is gone.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._waiting: deque[_Waiting] = deque()
        self._n_bytes = 0
        self._n_dropped = 0
        self._owner_pid = os.getpid()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def post(self, line: bytes, *, is_report: bool = False) -> None:
        """Sends as much as fits now. Reports never block; other messages may if memory is short."""
        self._waiting.append(_Waiting(line=line, is_report=is_report))
        self._n_bytes += len(line)
        self.send_ready()
        if self._n_bytes > MAX_UNSENT_BYTES:
            self._drop_reports()
        if not is_report:
            while self._n_bytes > MAX_UNSENT_BYTES:
                self._wait_for_room()

    def send_ready(self) -> None:
        """Sends as much as the socket accepts without blocking."""
        while self._waiting:
            first = self._waiting[0]
            try:
                unsent = memoryview(first.line)[first.n_sent :]
                first.n_sent += self._connection.send(unsent, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            if first.n_sent == len(first.line):
                self._waiting.popleft()
                self._n_bytes -= len(first.line)
        self._tell_dropped()

    def send_all(self) -> None:
        """Waits until everything is sent. Does nothing in a process that was forked later."""
        while self._waiting and self._owner_pid == os.getpid():
            self._wait_for_room()

    def _wait_for_room(self) -> None:
        select.select([], [self._connection], [])
        self.send_ready()

    def _drop_reports(self) -> None:
        """Drops the oldest reports until half of the memory is free; the newest one stays."""
        kept: deque[_Waiting] = deque()
        n_left = sum(waiting.is_report for waiting in self._waiting)
        for waiting in self._waiting:
            n_left -= waiting.is_report
            is_needed = not waiting.is_report or waiting.n_sent > 0 or n_left == 0
            if is_needed or self._n_bytes <= MAX_UNSENT_BYTES // 2:
                kept.append(waiting)
            else:
                self._n_bytes -= len(waiting.line)
                self._n_dropped += 1
        self._waiting = kept

    def _tell_dropped(self) -> None:
        if self._n_dropped:
            n_dropped, self._n_dropped = self._n_dropped, 0
            print(
                f"The dispatcher read nothing for a while: {n_dropped} reports were dropped, "
                f"because more than {MAX_UNSENT_BYTES:,} bytes were waiting. The newest are kept.",
                file=sys.stderr,
            )
