"""The channel's server against programs that do not keep to the protocol."""

from __future__ import annotations

import fcntl
import os
import resource
import select
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tuner.domain.attempt import AttemptId
from tuner.domain.messages import (
    MAX_LINE_BYTES,
    Action,
    Hello,
    Report,
    SetAttribute,
    Verdict,
    encode,
)
from tuner.launch.channel import ChannelServer
from tuner.launch.inbox import Event, Inbox, Received
from tuner.launch.local_host.socket_folder import SocketFolder, private_folder

A = AttemptId("1.1")


class Wire:
    """A server, and one client that has said hello."""

    def __init__(self) -> None:
        self.inbox = Inbox()
        self.folder = private_folder()
        self.server = ChannelServer(self.inbox, self.folder)
        self.client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.client.connect(self.server.address)
        self.client.setblocking(False)
        self.say_hello()

    def say_hello(self) -> None:
        hello = Hello(attempt_id=A, token=self.server.expect(A), pid=1)
        self.client.sendall(encode(hello))
        assert [event.message for event in self.drain()] == [hello]

    def drain(self) -> list[Received]:
        found: list[Event] = []
        for _ in range(3):
            found += self.inbox.drain(0.0)
        return [event for event in found if isinstance(event, Received)]

    def send(self, data: bytes) -> list[Received]:
        """All of it, with the server reading meanwhile."""
        events: list[Received] = []
        while data:
            try:
                data = data[self.client.send(data) :]
            except BlockingIOError:
                events += self.drain()
            except BrokenPipeError:
                break
        return events + self.drain()

    def is_closed(self) -> bool:
        select.select([self.client], [], [], 1.0)
        try:
            return self.client.recv(65536) == b""
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire()
    yield wire
    wire.client.close()
    wire.server.close()
    wire.inbox.close()
    wire.folder.rmdir()


def report(step: int) -> Report:
    return Report(attempt_id=A, step=step, values={"a": 0.5})


def test_message_split_over_sends_arrives_once_it_is_whole(wire: Wire):
    line = encode(report(1)) + encode(report(2))
    arrived = [event.message for i in range(len(line)) for event in wire.send(line[i : i + 1])]
    assert arrived == [report(1), report(2)]


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n",
        b"\xff\xfe\n",
        b"[" * 50_000 + b"\n",
        b'["Hello", {"attempt_id": 1}]\n',
    ],
    ids=["http", "bytes", "deep", "wrong kind"],
)
def test_garbage_closes_the_connection_and_what_came_before_counts(wire: Wire, garbage: bytes):
    events = wire.send(encode(report(1)) + garbage + encode(report(2)))
    assert [event.message for event in events] == [report(1)]
    assert wire.is_closed()


def test_message_that_only_the_dispatcher_sends_closes_the_connection(wire: Wire):
    assert wire.send(encode(Verdict(attempt_id=A, step=1, action=Action.STOP))) == []
    assert wire.is_closed()


def test_big_message_arrives(wire: Wire):
    attribute = SetAttribute(attempt_id=A, key="k", value="x" * 1_000_000)
    assert [event.message for event in wire.send(encode(attribute))] == [attribute]


def test_line_without_an_end_is_cut_off(wire: Wire):
    wire.send(b"x" * (MAX_LINE_BYTES + 200_000))
    assert wire.is_closed()


def test_worker_that_does_not_read_never_holds_the_dispatcher_up(wire: Wire):
    verdict = Verdict(attempt_id=A, step=1, action=Action.CONTINUE, reason="x" * 1000)
    for _ in range(2000):
        wire.server.broadcast(A, verdict)
    assert wire.drain() == []


def test_folder_of_the_socket_is_private_and_the_socket_goes_with_the_server(wire: Wire):
    assert stat.S_IMODE(wire.folder.stat().st_mode) == 0o700
    assert list(wire.folder.iterdir()) == [Path(wire.server.address)]
    wire.server.close()
    wire.server.close()
    assert not list(wire.folder.iterdir())


def test_folder_is_locked_until_it_goes() -> None:
    made = SocketFolder()
    other = os.open(made.path, os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
    made.close()
    made.close()
    fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
    os.close(other)
    assert not made.path.exists()


@pytest.fixture
def tmp_dir(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files whose name is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="sweep-") as name:
        monkeypatch.setattr("tempfile.tempdir", name)
        yield Path(name)


LEAVES_ONE = """
import os, signal, socket
from tuner.launch.local_host.lifeline import Lifeline
from tuner.launch.local_host.socket_folder import SocketFolder

made = SocketFolder()
lifeline = Lifeline(made.path)
socket.socket(socket.AF_UNIX).bind(str(made.path / "channel"))
print(made.path, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def left_by_a_killed_start(tmp_dir: Path) -> Path:
    environment = {**os.environ, "TMPDIR": str(tmp_dir)}
    words = [sys.executable, "-c", LEAVES_ONE]
    killed = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    return Path(killed.stdout.strip())


def make_old(folder: Path) -> None:
    os.utime(folder, (0, 0))


def test_folder_of_a_killed_start_is_removed_by_the_next(tmp_dir: Path) -> None:
    old, new = left_by_a_killed_start(tmp_dir), left_by_a_killed_start(tmp_dir)
    make_old(old)
    made = SocketFolder()
    assert not old.exists()
    assert new.exists()  # Its owner may be about to lock it.
    assert made.path.exists()
    made.close()


def test_folder_of_a_living_start_stays(tmp_dir: Path) -> None:
    living = SocketFolder()
    os.mkfifo(living.path / "lifeline")
    make_old(living.path)
    SocketFolder().close()
    assert (living.path / "lifeline").exists()
    living.close()


@pytest.mark.parametrize("change", ["file", "no lifeline", "name", "mode", "link"])
def test_folder_that_may_be_another_programs_stays(tmp_dir: Path, change: str) -> None:
    left = left_by_a_killed_start(tmp_dir)
    match change:
        case "file":
            (left / "notes").touch()
        case "no lifeline":
            (left / "lifeline").unlink()
        case "name":
            left = left.rename(tmp_dir / "tuner-devices")
        case "mode":
            left.chmod(0o755)
        case "link":
            away = left.rename(tmp_dir / "elsewhere")
            left.symlink_to(away)
            left = away
    before = sorted(left.iterdir())
    make_old(left)
    SocketFolder().close()
    assert sorted(left.iterdir()) == before


def test_address_fits_into_a_socket_address_below_a_deep_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    inbox = Inbox()
    folder = private_folder()
    server = ChannelServer(inbox, folder)
    assert len(os.fsencode(server.address)) <= 107
    server.close()
    inbox.close()
    folder.rmdir()


def test_no_more_descriptors_neither_end_the_loop_nor_keep_it_busy(wire: Wire) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    late = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    late.connect(wire.server.address)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    fillers = [os.dup(0) for _ in range(highest + 8)]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1, hard))
        assert wire.inbox.drain(0.0) == []
        # The listener is readable all the time.
        assert wire.inbox._selector.select(0) == []
        # Who is connected is heard meanwhile.
        assert wire.send(encode(REPORT)) != []
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for each in fillers:
            os.close(each)
    late.sendall(encode(Hello(attempt_id=A, token=wire.server.expect(A), pid=2)))
    found: list[Event] = []
    while not found:
        found += wire.inbox.drain(0.2)
    late.close()


REPORT = Report(attempt_id=A, step=1, values={"accuracy": 0.5})
