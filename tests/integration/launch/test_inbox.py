"""One wait for messages, exits and signals."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterable

import pytest

from tuner.domain.attempt import AttemptId
from tuner.domain.messages import Report
from tuner.launch.inbox import Event, Inbox, Received, SignalReceived, SignalSource, SourceId
from tuner.launch.inbox import WorkerExited as Exited

EXIT = Exited(attempt_id=AttemptId("1.1"), exit_code=0)
REPORT = Received(
    source=SourceId(1), message=Report(attempt_id=AttemptId("1.1"), step=1, values={"a": 0.5})
)


@pytest.mark.parametrize("number", SignalSource.NUMBERS, ids=lambda number: number.name)
def test_signal_becomes_an_event(number: signal.Signals):
    inbox = Inbox()
    before = signal.getsignal(number)
    with SignalSource(inbox):
        os.kill(os.getpid(), number)
        assert inbox.drain(5.0) == [SignalReceived(number=number)]
        assert inbox.drain(0.0) == []
    assert signal.getsignal(number) is before
    inbox.close()


def test_a_terminal_that_goes_away_is_no_event():
    inbox = Inbox()
    with SignalSource(inbox):
        os.kill(os.getpid(), signal.SIGHUP)
        assert inbox.drain(1.0) == []
    inbox.close()


def test_two_signals_are_two_events():
    inbox = Inbox()
    with SignalSource(inbox):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        assert inbox.drain(5.0) == [SignalReceived(number=signal.SIGINT)] * 2
    inbox.close()


def test_other_signals_are_not_ours():
    inbox = Inbox()
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        with SignalSource(inbox):
            os.kill(os.getpid(), signal.SIGUSR1)
            assert inbox.drain(5.0) == []
    finally:
        signal.signal(signal.SIGUSR1, before)
    inbox.close()


def watched(inbox: Inbox, event: Event) -> socket.socket:
    reader, writer = socket.socketpair()
    writer.send(b"x")

    def read() -> Iterable[Event]:
        reader.recv(1)
        yield event

    inbox.watch(reader, read)
    return writer


def test_exit_comes_after_what_was_said_whichever_was_seen_first():
    inbox = Inbox()
    writers = [watched(inbox, EXIT), watched(inbox, REPORT)]
    assert inbox.drain(5.0) == [REPORT, EXIT]
    for writer in writers:
        writer.close()
    inbox.close()


def test_source_that_an_earlier_one_forgot_is_not_called():
    inbox = Inbox()
    pairs = [socket.socketpair(), socket.socketpair()]
    called = []

    def forget_the_other(i: int) -> list[Event]:
        called.append(i)
        inbox.forget(pairs[1 - i][0])
        pairs[i][0].recv(1)
        return []

    for i, (reader, writer) in enumerate(pairs):
        writer.send(b"x")
        inbox.watch(reader, lambda i=i: forget_the_other(i))
    inbox.drain(1.0)
    assert len(called) == 1
    for pair in pairs:
        for each in pair:
            each.close()
    inbox.close()


def test_chores_are_done_while_nothing_happens_and_as_long_as_they_want():
    inbox = Inbox()
    done = []
    inbox.when_idle(lambda: len(done) < 3 and not done.append(1))
    assert inbox.drain(2.0) == []
    assert len(done) == 3
    inbox.close()


def test_chores_wait_for_events():
    inbox = Inbox()
    done = []
    inbox.when_idle(lambda: not done and not done.append(1))
    writer = watched(inbox, REPORT)
    assert inbox.drain(0.0) == [REPORT]
    assert done == []
    writer.close()
    inbox.close()


def test_chore_that_never_ends_does_not_hold_up_the_loop():
    inbox = Inbox()
    n_calls = 0

    def busy() -> bool:
        nonlocal n_calls
        n_calls += 1
        assert n_calls < 1_000_000, "drain does not come back"
        return True

    inbox.when_idle(busy)
    assert inbox.drain(0.05) == []
    writer = watched(inbox, REPORT)
    assert inbox.drain(0.05) == [REPORT]
    writer.close()
    inbox.close()
