"""Joins have a deadline: a process that does not end stops neither a launch nor the end.

Uninterruptible sleep cannot be made here. Simulated is what the launcher sees of it: SIGKILL is
sent and no exit comes. The exit of a traced process (ptrace(2)) does not reach its parent, the
fork server, until the tracer has waited for it. A fork server that does not answer is stopped with
SIGSTOP.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
from collections.abc import Iterator
from functools import partial
from multiprocessing import forkserver
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.contract.launch.conftest import LocalBench, is_process_alive, our_children, until
from tuner.errors import LaunchError
from tuner.launch.inbox import Inbox
from tuner.launch.local_host import fork_server as fork_server_module
from tuner.launch.local_host import launcher as launcher_module
from tuner.launch.local_host.guardian import Guardian
from tuner.launch.local_host.launcher import LocalLauncher, modules_of
from tuner.launch.request import FunctionProgram

_PTRACE_SEIZE = 0x4206
_WAIT_ALL = 0x40000000
_SHORT_S = 0.2


class Tracer:
    """Holds back the exits of processes from their parent. Linux only."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._held: list[int] = []

    def hold(self, pid: int) -> None:
        if self._libc.ptrace(_PTRACE_SEIZE, pid, 0, 0):
            pytest.skip(f"ptrace: {os.strerror(ctypes.get_errno())}")
        self._held.append(pid)

    def let_go(self) -> None:
        while self._held:
            os.kill(self._held[-1], signal.SIGKILL)
            os.waitpid(self._held.pop(), _WAIT_ALL)


@pytest.fixture
def tracer() -> Iterator[Tracer]:
    """Lets go after the launcher is closed: a fixture of this comes before the bench."""
    tracer = Tracer()
    yield tracer
    tracer.let_go()


@pytest.fixture(autouse=True)
def _deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_server_module, "_END_S", _SHORT_S)
    monkeypatch.setattr(fork_server_module, "_ANSWER_S", 1.0)
    monkeypatch.setattr(launcher_module, "_STRAYS_S", _SHORT_S)
    monkeypatch.setattr(launcher_module, "Guardian", partial(Guardian, _SHORT_S))


def server_pid() -> int:
    server: Any = forkserver._forkserver
    pid: int = server._forkserver_pid
    return pid


def test_rank_that_does_not_end_holds_up_no_failed_launch(
    tracer: Tracer, local: LocalBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = local.start("sleeps", "2.1")
    tracer.hold(local.forked_ahead())
    with monkeypatch.context() as patch:
        patch.setattr(local.launcher, "_fork", _refuse)
        with pytest.raises(LaunchError, match="no more processes"):
            local.start_ranks("sleeps", "sleeps")
    tracer.let_go()
    # Its exit comes late and is no event: the attempt has none of its own.
    local.start("exits_3")
    assert [(each.attempt_id, each.exit_code) for each in local.exits()] == [("1.1", 3)]
    assert is_process_alive(other)


def _refuse() -> NoReturn:
    raise LaunchError("no more processes")


def test_worker_that_was_killed_counts_as_ended_after_a_time(
    tracer: Tracer, local: LocalBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher_module, "_GIVE_UP_S", _SHORT_S)
    pids = local.start_ranks("sleeps", "sleeps")
    tracer.hold(pids[1])
    local.launcher.kill("1.1")  # type: ignore[arg-type]
    found = local.exits()
    while len(found) < 2:
        found += local.exits()
    assert sorted((each.rank, each.exit_code, each.is_lost) for each in found) == [
        (0, -signal.SIGKILL, False),
        (1, -signal.SIGKILL, False),
    ]
    tracer.let_go()
    local.start("exits_3", "2.1")
    assert [each.attempt_id for each in local.exits()] == ["2.1"]


def test_workers_and_waiting_processes_that_do_not_end_hold_up_no_close(
    tracer: Tracer, local: LocalBench
) -> None:
    tracer.hold(local.start("sleeps"))
    waiting = local.forked_ahead()
    tracer.hold(waiting)
    os.kill(waiting, signal.SIGSTOP)
    local.launcher.close()
    # Python joins at its own end what is left in there, without a deadline.
    assert not multiprocessing.active_children()


def test_stopped_server_is_replaced(local: LocalBench) -> None:
    old = server_pid()
    worker = local.start("sleeps", "1.1")
    os.kill(old, signal.SIGSTOP)
    local.start("sleeps", "2.1")
    assert server_pid() != old
    assert [(each.attempt_id, each.is_lost) for each in local.exits()] == [("1.1", True)]
    until(lambda: not any(map(is_process_alive, (old, worker))), "server and worker have ended")


def test_stopped_server_holds_up_no_close(local: LocalBench) -> None:
    worker = local.start("sleeps")
    os.kill(server_pid(), signal.SIGSTOP)
    local.launcher.close()
    until(lambda: not is_process_alive(worker), "the worker has ended")
    assert not multiprocessing.active_children()


def test_server_that_does_not_end_holds_up_no_close(
    local: LocalBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulated: SIGKILL to the server is lost."""
    worker, server = local.start("sleeps"), server_pid()
    monkeypatch.setattr(fork_server_module, "_kill", lambda pid: None)
    os.kill(server, signal.SIGSTOP)
    local.launcher.close()
    assert not multiprocessing.active_children()
    assert forkserver._forkserver._forkserver_pid is None
    os.kill(server, signal.SIGKILL)
    os.waitpid(server, 0)
    until(lambda: not is_process_alive(worker), "the worker has ended")


def _check(source: str, folder: Path) -> None:
    # Warm interpreters of earlier tests may be there.
    before = our_children()
    (folder / "user_module.py").write_text(source)
    program = FunctionProgram(module="user_module", function="train")
    inbox = Inbox()
    launcher = LocalLauncher(
        inbox,
        modules=[name for name in modules_of(program) if name != "torch"],
        environment={},
        log_path=folder / "imports.log",
        import_path=[str(folder)],
    )
    try:
        launcher.check(program)
    finally:
        launcher.close()
        inbox.close()
    assert our_children() <= before


def test_import_that_does_not_end_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(fork_server_module, "IMPORT_S", 1.0)
    with pytest.raises(LaunchError, match="took more than 1 s"):
        _check("import time; time.sleep(600)", tmp_path)


_WITH_A_THREAD = """
import os, threading, time
os.register_at_fork(after_in_child=lambda: threading.Thread(target=time.sleep, args=(600,)).start())
def train(trial): ...
"""


def test_check_whose_process_does_not_end_is_no_error(tmp_path: Path) -> None:
    _check(_WITH_A_THREAD, tmp_path)
