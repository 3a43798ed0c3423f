"""The dispatcher's end of the channel: a Unix socket that workers and their scripts connect to."""

from __future__ import annotations

import collections
import contextlib
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tuner.domain import messages
from tuner.domain.attempt import AttemptId
from tuner.launch.inbox import Event, Inbox, Received, SourceId

_log = logging.getLogger(__name__)
_READ_BYTES = 65536
#: After an error of `accept`.
_REST_S = 1.0


@dataclass(slots=True, kw_only=True)
class _Connection:
    source: SourceId
    socket: socket.socket
    attempt_id: AttemptId | None = None
    received: bytearray = field(default_factory=bytearray)
    unsent: bytearray = field(default_factory=bytearray)
    is_waiting_for_room: bool = False


_ONLY_OURS = (messages.Assign, messages.Verdict, messages.Suggested, messages.StudyPlace)


class ChannelServer:
    """Server for workers' connections. A worker must present its attempt's token.

    Args:
        inbox: Receives the messages.
        folder: Folder of its socket; only this user may enter it.
    """

    def __init__(self, inbox: Inbox, folder: Path) -> None:
        self._inbox = inbox
        self.address = str(folder / "channel")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.address)
        self._listener.listen(128)
        self._listener.setblocking(False)
        self._tokens: dict[AttemptId, str] = {}
        self._connections: dict[SourceId, _Connection] = {}
        self._n_sources = 0
        inbox.watch(self._listener, self._accept)
        #: Whether the inbox watches the listener, and when it does so again.
        self._is_listening = True
        self._listen_again_at_s = 0.0
        inbox.when_idle(self._listen_again)

    def expect(self, attempt_id: AttemptId) -> str:
        """Admits an attempt; returns the token that it must present."""
        self._tokens[attempt_id] = secrets.token_hex(16)
        return self._tokens[attempt_id]

    def send(self, source: SourceId, message: messages.ToWorker) -> None:
        """Replies on one connection. If it is closed, this is no error: an exit follows."""
        if connection := self._connections.get(source):
            self._send(connection, message)

    def broadcast(self, attempt_id: AttemptId, message: messages.ToWorker) -> None:
        """Sends a message to all connections of an attempt."""
        for connection in self._of(attempt_id):
            self._send(connection, message)

    def read_rest(self, attempt_id: AttemptId) -> list[Event]:
        """Reads the remaining messages of an attempt that has exited.

        A short one may have connected and exited unseen: its connection is in the listener's queue,
        or its hello is unread. Messages of others may be read with it.
        """
        collections.deque(self._accept(), maxlen=0)
        unread = [c for c in self._connections.values() if c.attempt_id in (None, attempt_id)]
        return [event for connection in unread for event in self._read(connection)]

    def dismiss(self, attempt_id: AttemptId) -> None:
        """Closes an attempt's connections. Safe to call twice."""
        self._tokens.pop(attempt_id, None)
        for connection in self._of(attempt_id):
            self._close(connection)

    def close(self) -> None:
        """Safe to call twice."""
        for connection in list(self._connections.values()):
            self._close(connection)
        if self._listener.fileno() >= 0:
            if self._is_listening:
                self._inbox.forget(self._listener)
            self._listener.close()
            with contextlib.suppress(OSError):
                os.unlink(self.address)

    def _accept(self) -> Iterator[Event]:
        try:
            while True:
                self._take_in(self._listener.accept()[0])
        except (BlockingIOError, ConnectionAbortedError):
            pass
        except OSError as error:
            self._rest(error)
        yield from ()

    def _take_in(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        self._n_sources += 1
        source = SourceId(self._n_sources)
        connection = _Connection(source=source, socket=accepted)
        self._connections[source] = connection
        self._inbox.watch(accepted, partial(self._read, connection))

    def _rest(self, error: OSError) -> None:
        """Pauses the listener when no connection can be accepted (too many open files).

        It stays readable all the time, and would keep the loop busy.
        """
        _log.warning("No program can connect for %g s: %s", _REST_S, error)
        self._listen_again_at_s = time.monotonic() + _REST_S
        if self._is_listening:
            self._inbox.forget(self._listener)
            self._is_listening = False

    def _listen_again(self) -> bool:
        is_closed = self._listener.fileno() < 0
        is_due = time.monotonic() >= self._listen_again_at_s
        if is_due and not self._is_listening and not is_closed:
            self._inbox.watch(self._listener, self._accept)
            self._is_listening = True
        return False

    def _read(self, connection: _Connection) -> Iterable[Event]:
        if connection.unsent:
            self._flush(connection)
        is_open = _receive_all(connection)
        events: list[Event] = []
        *lines, rest = bytes(connection.received).split(b"\n")
        connection.received[:] = rest
        try:
            for line in lines:
                message = self._admit(connection, line)
                events.append(Received(source=connection.source, message=message))
        except messages.MalformedMessage as error:
            _log.warning("%s", error)
            is_open = False
        if not is_open or len(connection.received) > messages.MAX_LINE_BYTES:
            self._close(connection)
        return events

    def _admit(self, connection: _Connection, line: bytes) -> messages.FromWorker:
        """Checks a worker's message.

        Raises:
            MalformedMessage: If the line is no worker message, or names another attempt.
        """
        message = messages.decode(line)
        if isinstance(message, _ONLY_OURS):
            raise messages.MalformedMessage("A worker sent a message that only we send.")
        if isinstance(message, messages.Hello):
            expected = self._tokens.get(message.attempt_id, "")
            token = message.token.encode(errors="replace")
            if not expected or not secrets.compare_digest(expected.encode(), token):
                raise messages.MalformedMessage(
                    f"A process without its token sent a message for attempt {message.attempt_id}."
                )
            connection.attempt_id = message.attempt_id
        if message.attempt_id != connection.attempt_id:
            raise messages.MalformedMessage(
                f"A program spoke for attempt {message.attempt_id} without saying hello."
            )
        return message

    def _of(self, attempt_id: AttemptId) -> list[_Connection]:
        return [c for c in self._connections.values() if c.attempt_id == attempt_id]

    def _send(self, connection: _Connection, message: messages.ToWorker) -> None:
        connection.unsent += messages.encode(message)
        self._flush(connection)

    def _flush(self, connection: _Connection) -> None:
        """Sends as much as fits. A program that does not read must not block the loop."""
        try:
            while connection.unsent:
                del connection.unsent[: connection.socket.send(connection.unsent)]
        except BlockingIOError:
            pass  # The rest goes out when it has read some.
        except OSError:
            connection.unsent.clear()  # Gone. What it said last is still to be read.
        is_waiting = bool(connection.unsent)
        if is_waiting != connection.is_waiting_for_room:
            connection.is_waiting_for_room = is_waiting
            self._inbox.wait_for_room(connection.socket, is_waiting)

    def _close(self, connection: _Connection) -> None:
        if self._connections.pop(connection.source, None):
            self._inbox.forget(connection.socket)
            connection.socket.close()


def _receive_all(connection: _Connection) -> bool:
    """Reads all available bytes; False once the other end is closed."""
    read: Callable[[int], bytes] = connection.socket.recv
    try:
        while chunk := read(_READ_BYTES):
            connection.received += chunk
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
