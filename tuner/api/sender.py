"""The dispatching process's end of the pipe to its caller. It never waits for the caller."""

from __future__ import annotations

import os
import select
import time
from collections import deque

from tuner.api.messages import Message, Progress, encode

#: Messages that wait for a caller that is busy. More are dropped, the oldest first.
_MAX_WAITING = 10_000
#: Seconds that the last messages wait for the caller.
_END_S = 10.0


class Sender:
    """Sends messages through a pipe without blocking.

    Args:
        fd: The pipe. It is closed with this object.
    """

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        os.set_inheritable(fd, False)
        self._fd = fd
        self._waiting: deque[bytes] = deque(maxlen=_MAX_WAITING)
        #: The rest of a message of which a part is written.
        self._rest = b""
        self._is_open = True

    def send(self, message: Message) -> None:
        """Writes the message, or keeps it while the pipe is full."""
        if isinstance(message, Progress) and (self._waiting or self._rest):
            # An old picture is worth nothing when the next one comes.
            self._write()
            return
        self._waiting.append(encode(message))
        self._write()

    def close(self) -> None:
        """Sends queued messages, for a limited time."""
        give_up_at_s = time.monotonic() + _END_S
        while self._is_open and (self._waiting or self._rest):
            left_s = give_up_at_s - time.monotonic()
            if left_s <= 0:
                break
            select.select([], [self._fd], [], left_s)
            self._write()
        os.close(self._fd)

    def _write(self) -> None:
        while self._is_open and (self._rest or self._waiting):
            data = self._rest or self._waiting.popleft()
            try:
                self._rest = data[os.write(self._fd, data) :]
            except BlockingIOError:
                self._rest = data
                return
            except OSError:
                # The caller is gone; the study is stopped for that elsewhere.
                self._is_open = False
