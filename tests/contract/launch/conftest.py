"""The same programs on the fake launcher and on real processes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import forkserver
from pathlib import Path
from typing import Any, Protocol

import psutil
import pytest

from tests.fakes import FakeClock, FakeInbox, FakeLauncher
from tuner.domain.attempt import AttemptId
from tuner.domain.messages import Assign
from tuner.launch.channel import ChannelServer
from tuner.launch.inbox import Inbox, WorkerExited
from tuner.launch.local_host.launcher import LocalLauncher, modules_of
from tuner.launch.plan import ENV_ATTEMPT, ENV_CHANNEL, ENV_TOKEN
from tuner.launch.protocols import Launcher
from tuner.launch.request import FunctionProgram, LaunchRequest

WAIT_S = 30.0
PROGRAMS = '''
import os, pathlib, signal, subprocess, sys, time

def exits_3(trial):
    os._exit(3)

def exits_255(trial):
    os._exit(255)

def kills_itself(trial):
    os.kill(os.getpid(), signal.SIGKILL)

def sleeps(trial):
    _ready()
    time.sleep(600)

def stubborn(trial):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _ready()
    while True:
        time.sleep(600)

def with_grandchild(trial):
    child = subprocess.Popen(["sleep", "600"])
    pathlib.Path("grandchild").write_text(str(child.pid))
    _ready()
    time.sleep(600)

def leaves_grandchild(trial):
    child = subprocess.Popen(["sleep", "600"])
    pathlib.Path("grandchild").write_text(str(child.pid))
    os._exit(4)

MIDDLE = """
import pathlib, subprocess, time
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
pathlib.Path("new").write_text(str(child.pid))
pathlib.Path("new").rename("grandchild")
time.sleep(600)
"""

def as_a_starter_of_ranks_does(trial):
    _start_one_with_a_session()
    _ready()
    time.sleep(600)

def leaves_a_session(trial):
    _start_one_with_a_session()
    os._exit(4)

def as_a_starter_with_a_session_does(trial):
    _start_one_with_a_session(is_apart=True)
    _ready()
    time.sleep(600)

def without_variables(trial):
    child = subprocess.Popen(["sleep", "600"], start_new_session=True, env={})
    pathlib.Path("grandchild").write_text(str(child.pid))
    _ready()
    time.sleep(600)

def _start_one_with_a_session(is_apart=False):
    subprocess.Popen([sys.executable, "-c", MIDDLE], start_new_session=is_apart)
    while not pathlib.Path("grandchild").exists():
        time.sleep(0.01)

def _ready():
    pathlib.Path(f"ready-{os.getpid()}").touch()
'''

_THAT_GET_READY = (
    "sleeps",
    "stubborn",
    "with_grandchild",
    "as_a_starter_of_ranks_does",
    "as_a_starter_with_a_session_does",
    "without_variables",
)


def until(is_so: Callable[[], bool], what: str) -> None:
    """Polls, for a bounded time, something that other processes bring about."""
    give_up_at_s = time.monotonic() + WAIT_S
    while not is_so():
        if time.monotonic() > give_up_at_s:
            pytest.fail(f"After {WAIT_S:.0f} s still not so: {what}")
        time.sleep(0.01)


def is_process_alive(pid: int) -> bool:
    """A zombie, which only waits for its parent to look at it, counts as dead."""
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


class Bench(Protocol):
    """A launcher, and what the suite needs to try it."""

    launcher: Launcher

    def start(self, program: str, attempt_id: str = "1.1") -> int: ...

    def start_ranks(self, *programs: str) -> tuple[int, ...]:
        """Launches attempt 1.1 with a rank for each program."""

    def exits(self) -> list[WorkerExited]:
        """Waits until there is one."""

    def is_alive(self, pid: int) -> bool: ...


class FakeBench:
    def __init__(self) -> None:
        self._inbox = FakeInbox(FakeClock())
        self.launcher = FakeLauncher(self._inbox, self._play)

    def start(self, program: str, attempt_id: str = "1.1") -> int:
        return self._start([program], attempt_id)[0]

    def start_ranks(self, *programs: str) -> tuple[int, ...]:
        return self._start(programs, "1.1")

    def _start(self, programs: Sequence[str], attempt_id: str) -> tuple[int, ...]:
        return self.launcher.launch(_requests(programs, attempt_id, Path("/nowhere"), {}))

    def exits(self) -> list[WorkerExited]:
        return [e for e in self._inbox.drain(1.0) if isinstance(e, WorkerExited)]

    def is_alive(self, pid: int) -> bool:
        return self.launcher.is_alive(pid)

    def _play(self, request: LaunchRequest) -> None:
        assert isinstance(request.program, FunctionProgram)
        match request.program.function:
            case "exits_3":
                self.launcher.exit(request.attempt_id, 3, request.rank)
            case "kills_itself":
                self.launcher.exit(request.attempt_id, -signal.SIGKILL, request.rank)
            case "stubborn":
                self.launcher.stubborn.add(request.attempt_id)


class LocalBench:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        #: Of tests before this one, such as a server of warm Python.
        self.others = our_children()
        (folder / "programs.py").write_text(PROGRAMS)
        self._inbox = Inbox()
        program = FunctionProgram(module="programs", function="sleeps")
        self.launcher = LocalLauncher(
            self._inbox,
            modules=[name for name in modules_of(program) if name != "torch"],
            environment={},
            log_path=folder / "imports.log",
            import_path=[str(folder)],
            n_spares=1,
        )
        self._channel = ChannelServer(self._inbox, self.launcher.folder)

    def start(self, program: str, attempt_id: str = "1.1") -> int:
        return self._start([program], attempt_id)[0]

    def start_ranks(self, *programs: str) -> tuple[int, ...]:
        return self._start(programs, "1.1")

    def _start(self, programs: Sequence[str], attempt_id: str) -> tuple[int, ...]:
        for name in [*self.folder.glob("ready-*"), self.folder / "grandchild"]:
            name.unlink(missing_ok=True)
        environment = {
            ENV_CHANNEL: self._channel.address,
            ENV_TOKEN: self._channel.expect(AttemptId(attempt_id)),
            ENV_ATTEMPT: attempt_id,
        }
        pids = self.launcher.launch(_requests(programs, attempt_id, self.folder, environment))
        for pid, program in zip(pids, programs, strict=True):
            if program in _THAT_GET_READY:
                until((self.folder / f"ready-{pid}").exists, f"{program} runs")
        return pids

    def exits(self) -> list[WorkerExited]:
        found: list[WorkerExited] = []
        until(lambda: bool(found.extend(self._drain()) or found), "a worker has exited")
        return found

    def is_alive(self, pid: int) -> bool:
        return is_process_alive(pid)

    @property
    def grandchild(self) -> int:
        return int((self.folder / "grandchild").read_text())

    def forked_ahead(self) -> int:
        """Lets the launcher fork a process that waits for its trial."""
        before = our_children()
        until(lambda: self._has_forked(before), "one waits")
        (pid,) = our_children() - before
        return pid

    def look(self) -> bool:
        """Lets it do what it does while nothing happens."""
        self._inbox.drain(0.0)
        return True

    def kill_fork_server(self) -> None:
        server: Any = forkserver._forkserver
        pid: int = server._forkserver_pid
        os.kill(pid, signal.SIGKILL)
        until(lambda: not is_process_alive(pid), "it is gone")

    def _has_forked(self, before: set[int]) -> bool:
        self._inbox.drain(0.0)
        return our_children() > before

    def close(self) -> None:
        self.launcher.close()
        self._channel.close()
        self._inbox.close()

    def _drain(self) -> list[WorkerExited]:
        return [e for e in self._inbox.drain(0.05) if isinstance(e, WorkerExited)]


def _requests(
    programs: Sequence[str], attempt_id: str, folder: Path, environment: dict[str, str]
) -> list[LaunchRequest]:
    return [
        _request(program, rank, attempt_id, folder, environment)
        for rank, program in enumerate(programs)
    ]


def _request(
    program: str, rank: int, attempt_id: str, folder: Path, environment: dict[str, str]
) -> LaunchRequest:
    number, attempt = (int(part) for part in attempt_id.split("."))
    return LaunchRequest(
        rank=rank,
        attempt_id=AttemptId(attempt_id),
        program=FunctionProgram(module="programs", function=program),
        assign=Assign(
            attempt_id=AttemptId(attempt_id),
            trial_number=number,
            attempt_number=attempt,
            params={},
            seed=1,
            checkpoint_dir=str(folder / "checkpoints"),
            objectives=("value",),
            devices=("cpu:0",),
        ),
        folder=str(folder),
        log_path=str(folder / "trial.log"),
        environment=environment,
    )


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalBench]:
    bench = LocalBench(tmp_path)
    yield bench
    bench.close()


@pytest.fixture(params=["fake", pytest.param("local", marks=pytest.mark.slow)])
def bench(request: pytest.FixtureRequest) -> Bench:
    return FakeBench() if request.param == "fake" else request.getfixturevalue("local")


def children_of(pid: int) -> list[int]:
    return [child.pid for child in psutil.Process(pid).children(recursive=True)]


def our_children() -> set[int]:
    """Processes below this one, but for multiprocessing's own, which ends with it."""
    return {pid for pid in children_of(os.getpid()) if "resource_tracker" not in command_of(pid)}


def command_of(pid: int) -> str:
    try:
        return " ".join(psutil.Process(pid).cmdline())
    except psutil.NoSuchProcess:
        return ""
