"""All events that wake the dispatcher: messages, exits of workers, signals.

One `select` waits for all of them, so a freed device is seen at once without polling.
"""

from __future__ import annotations

import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import NewType, Protocol, Self, TypeAlias

from tuner.domain.attempt import AttemptId
from tuner.domain.messages import FromWorker

SourceId = NewType("SourceId", int)
"""A connection: an attempt may have two, its worker's and that of a script below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A message has arrived."""

    source: SourceId
    message: FromWorker


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerExited:
    """A process of an attempt is gone, and with it all of its group."""

    attempt_id: AttemptId
    rank: int = 0
    #: As in `subprocess`: negative for a signal.
    exit_code: int
    #: Whether the launcher's own machinery died, and the process was ended with it.
    is_lost: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalReceived:
    """The dispatcher itself received a signal to end."""

    number: int


Event: TypeAlias = Received | WorkerExited | SignalReceived


class HasFileno(Protocol):
    def fileno(self) -> int: ...


Watched: TypeAlias = int | HasFileno
Source: TypeAlias = Callable[[], Iterable[Event]]


class Inbox:
    """Waits for many sources at once."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._chores: list[Callable[[], bool]] = []

    def when_idle(self, chore: Callable[[], bool]) -> None:
        """Calls `chore` while no other event occurs, again at once if it returns True.

        A chore that waits for something returns False: it is called again in the next iteration.
        """
        self._chores.append(chore)

    def watch(self, file: Watched, source: Source) -> None:
        """Calls `source` for its events whenever `file` is readable."""
        self._selector.register(file, selectors.EVENT_READ, source)

    def wait_for_room(self, file: Watched, is_wanted: bool) -> None:
        """Calls the source of `file` also when it can be written, or no more."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if is_wanted else 0)
        self._selector.modify(file, events, self._selector.get_key(file).data)

    def forget(self, file: Watched) -> None:
        self._selector.unregister(file)

    def drain(self, timeout_s: float) -> list[Event]:
        """Waits for events, at most `timeout_s`; returns all that have occurred.

        Chores run first, as long as they need, but within that time.
        """
        give_up_at_s = time.monotonic() + timeout_s
        ready = self._selector.select(0)
        while not ready and any([chore() for chore in self._chores]):
            ready = self._selector.select(0)
            if time.monotonic() >= give_up_at_s:
                break
        left_s = max(0.0, give_up_at_s - time.monotonic())
        events: list[Event] = []
        for key, _ in ready or self._selector.select(left_s):
            # An earlier source of this round may have closed a later one.
            if self._selector.get_map().get(key.fd) is key:
                events.extend(key.data())
        # Handled last: a worker's messages before its exit come from another file.
        return sorted(events, key=lambda event: isinstance(event, WorkerExited))

    def close(self) -> None:
        self._selector.close()


class SignalSource:
    """Turns SIGINT and SIGTERM into events, as a context manager.

    SIGHUP is ignored meanwhile: a study continues when its terminal is closed or its connection is
    lost. By a handler, since child processes would inherit SIG_IGN.

    Args:
        inbox: Receives the events.
    """

    NUMBERS = (signal.SIGINT, signal.SIGTERM)
    _HANDLED = (*NUMBERS, signal.SIGHUP)

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def __enter__(self) -> Self:
        self._old_fd = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self._old = {number: signal.signal(number, _noted) for number in self._HANDLED}
        self._inbox.watch(self._reader, self._read)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._inbox.forget(self._reader)
        for number, old in self._old.items():
            signal.signal(number, old)
        signal.set_wakeup_fd(self._old_fd)
        self._reader.close()
        self._writer.close()

    def _read(self) -> Iterable[Event]:
        try:
            numbers = self._reader.recv(64)
        except BlockingIOError:
            return
        for number in numbers:
            if number in self.NUMBERS:
                yield SignalReceived(number=number)


def _noted(_number: int, _frame: FrameType | None) -> None:
    """The wake-up file descriptor already carries the signal's number to the loop."""
