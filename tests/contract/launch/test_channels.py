"""What the dispatcher may expect of a channel, tried on the fake one and on real sockets."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from typing import Protocol

import pytest

from tests.fakes import FakeChannel, FakeClock, FakeInbox
from tuner.domain.attempt import AttemptId, Outcome
from tuner.domain.messages import (
    Action,
    Finished,
    FromWorker,
    Hello,
    Message,
    Report,
    Verdict,
    decode,
    encode,
)
from tuner.launch.channel import ChannelServer
from tuner.launch.inbox import Event, Inbox, Received, SourceId
from tuner.launch.local_host.socket_folder import private_folder
from tuner.launch.protocols import Channel

A, B = AttemptId("1.1"), AttemptId("2.1")


class Line(Protocol):
    """A worker's end."""

    def say(self, *messages: FromWorker) -> None: ...

    def hear(self) -> list[Message]: ...

    def is_open(self) -> bool: ...

    def leave(self) -> None: ...


class Desk(Protocol):
    """The dispatcher's end, and a way to make workers' ends."""

    channel: Channel

    def connect(self) -> Line: ...

    def drain(self) -> list[Event]: ...


class FakeLine:
    def __init__(self, channel: FakeChannel) -> None:
        self._channel = channel
        self._source = channel.connect()

    def say(self, *messages: FromWorker) -> None:
        for message in messages:
            self._channel.say(self._source, message)

    def hear(self) -> list[Message]:
        return list(self._channel.heard(self._source))

    def is_open(self) -> bool:
        return self._channel.is_open(self._source)

    def leave(self) -> None: ...


class FakeDesk:
    def __init__(self) -> None:
        self._inbox = FakeInbox(FakeClock())
        self.channel = FakeChannel(self._inbox)

    def connect(self) -> FakeLine:
        return FakeLine(self.channel)

    def drain(self) -> list[Event]:
        return self._inbox.drain(0.0)


class SocketLine:
    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(address)
        self._heard = b""
        self._is_closed = False

    def say(self, *messages: FromWorker) -> None:
        self._socket.sendall(b"".join(map(encode, messages)))

    def hear(self) -> list[Message]:
        while not self._is_closed and select.select([self._socket], [], [], 0.0)[0]:
            chunk = self._receive()
            self._is_closed = not chunk
            self._heard += chunk
        return [decode(line) for line in self._heard.splitlines()]

    def is_open(self) -> bool:
        self.hear()
        return not self._is_closed

    def leave(self) -> None:
        self._socket.close()

    def _receive(self) -> bytes:
        try:
            return self._socket.recv(65536)
        except ConnectionResetError:
            return b""


class SocketDesk:
    def __init__(self) -> None:
        self._inbox = Inbox()
        self._folder = private_folder()
        self.channel = ChannelServer(self._inbox, self._folder)
        self._lines: list[SocketLine] = []

    def connect(self) -> SocketLine:
        self._lines.append(SocketLine(self.channel.address))
        return self._lines[-1]

    def drain(self) -> list[Event]:
        found: list[Event] = []
        # First the connection is accepted, then it is read.
        for _ in range(3):
            found += self._inbox.drain(0.0)
        return found

    def close(self) -> None:
        for line in self._lines:
            line.leave()
        self.channel.close()
        self._inbox.close()
        self._folder.rmdir()


@pytest.fixture(params=["fake", "sockets"])
def desk(request: pytest.FixtureRequest) -> Iterator[Desk]:
    if request.param == "fake":
        yield FakeDesk()
    else:
        desk = SocketDesk()
        yield desk
        desk.close()


def hello(attempt_id: AttemptId, token: str) -> Hello:
    return Hello(attempt_id=attempt_id, token=token, pid=1)


def report(attempt_id: AttemptId, step: int = 1) -> Report:
    return Report(attempt_id=attempt_id, step=step, values={"a": 0.5})


def verdict(attempt_id: AttemptId, step: int = 1) -> Verdict:
    return Verdict(attempt_id=attempt_id, step=step, action=Action.CONTINUE)


def received(events: list[Event]) -> list[FromWorker]:
    return [event.message for event in events if isinstance(event, Received)]


def test_messages_arrive_in_order_from_one_source(desk: Desk):
    line = desk.connect()
    said = [hello(A, desk.channel.expect(A)), report(A, 1), report(A, 2)]
    line.say(*said)
    events = desk.drain()
    assert received(events) == said
    assert len({event.source for event in events if isinstance(event, Received)}) == 1


def test_wrong_token_is_refused(desk: Desk):
    line = desk.connect()
    desk.channel.expect(A)
    line.say(hello(A, "guess"))
    assert desk.drain() == []
    assert not line.is_open()


def test_speaking_before_hello_is_refused(desk: Desk):
    line = desk.connect()
    desk.channel.expect(A)
    line.say(report(A))
    assert desk.drain() == []
    assert not line.is_open()


def test_speaking_for_another_attempt_is_refused(desk: Desk):
    line = desk.connect()
    token_a, _ = desk.channel.expect(A), desk.channel.expect(B)
    line.say(hello(A, token_a))
    desk.drain()
    line.say(report(B))
    assert desk.drain() == []
    assert not line.is_open()


def test_token_of_another_attempt_is_refused(desk: Desk):
    line = desk.connect()
    token_a, _ = desk.channel.expect(A), desk.channel.expect(B)
    line.say(hello(B, token_a))
    assert desk.drain() == []
    assert not line.is_open()


def test_send_answers_one_connection_and_broadcast_all_of_the_attempt(desk: Desk):
    lines = [desk.connect(), desk.connect(), desk.connect()]
    tokens = {A: desk.channel.expect(A), B: desk.channel.expect(B)}
    for line, attempt_id in zip(lines, (A, A, B), strict=True):
        line.say(hello(attempt_id, tokens[attempt_id]))
    events = desk.drain()
    source = next(e.source for e in events if isinstance(e, Received))
    desk.channel.send(source, verdict(A, 1))
    desk.channel.broadcast(A, verdict(A, 2))
    heard = sorted(len(line.hear()) for line in lines[:2])
    assert heard == [1, 2]
    assert lines[2].hear() == []


def test_send_to_nobody_is_no_error(desk: Desk):
    desk.channel.send(SourceId(99), verdict(A))
    desk.channel.broadcast(A, verdict(A))


def test_read_rest_gives_what_nobody_has_read_yet(desk: Desk):
    line = desk.connect()
    line.say(hello(A, desk.channel.expect(A)))
    desk.drain()
    done = Finished(attempt_id=A, outcome=Outcome.COMPLETED, values={"a": 1.0})
    line.say(report(A), done)
    line.leave()
    assert received(list(desk.channel.read_rest(A))) == [report(A), done]
    assert received(desk.drain()) == []


def test_read_rest_of_a_worker_that_came_and_went_unseen(desk: Desk):
    line = desk.connect()
    said = [hello(A, desk.channel.expect(A)), report(A)]
    line.say(*said)
    line.leave()
    assert received(list(desk.channel.read_rest(A))) == said


def test_read_rest_loses_nothing_of_others(desk: Desk):
    ours, theirs = desk.connect(), desk.connect()
    said = {A: hello(A, desk.channel.expect(A)), B: hello(B, desk.channel.expect(B))}
    ours.say(said[A])
    theirs.say(said[B])
    found = received([*desk.channel.read_rest(A), *desk.drain()])
    assert sorted(m.attempt_id for m in found) == [A, B]


def test_dismissed_attempt_is_heard_no_more(desk: Desk):
    line = desk.connect()
    token = desk.channel.expect(A)
    line.say(hello(A, token))
    desk.drain()
    desk.channel.dismiss(A)
    desk.channel.dismiss(A)
    assert not line.is_open()
    late = desk.connect()
    late.say(hello(A, token))
    assert desk.drain() == []
