"""A fork server that is killed: what it started is lost, and no failure of any trial."""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing import forkserver
from threading import Timer
from typing import Any

import pytest

from tests.contract.launch.conftest import LocalBench, is_process_alive, until
from tuner.domain.attempt import AttemptId
from tuner.launch.inbox import WorkerExited


def exits_of(local: LocalBench, n: int) -> list[WorkerExited]:
    found: list[WorkerExited] = []
    while len(found) < n:
        found += local.exits()
    return sorted(found, key=lambda each: each.attempt_id)


def test_its_workers_are_ended_and_lost(local: LocalBench) -> None:
    pids = [local.start("sleeps", "1.1"), local.start("with_grandchild", "2.1")]
    family = [*pids, local.grandchild]
    local.kill_fork_server()
    lost = exits_of(local, 2)
    assert [(each.attempt_id, each.is_lost) for each in lost] == [("1.1", True), ("2.1", True)]
    until(lambda: not any(map(is_process_alive, family)), "nothing of them is left")


def test_next_one_starts_from_a_new_server(local: LocalBench) -> None:
    local.start("sleeps", "1.1")
    waiting = local.forked_ahead()
    local.kill_fork_server()
    exits_of(local, 1)
    # Not the one that waited, whose end nobody could tell.
    pid = local.start("sleeps", "1.2")
    assert pid != waiting
    until(lambda: not is_process_alive(waiting), "that one has ended")
    os.kill(pid, signal.SIGKILL)
    (ended,) = exits_of(local, 1)
    assert (ended.attempt_id, ended.exit_code) == (AttemptId("1.2"), -signal.SIGKILL)
    assert not ended.is_lost


def test_one_that_is_killed_while_it_is_asked_costs_no_attempt(local: LocalBench) -> None:
    server: Any = forkserver._forkserver
    pid: int = server._forkserver_pid
    os.kill(pid, signal.SIGSTOP)
    # As soon as it is asked for a process, mostly; and where it is gone before, that is as well.
    killer = Timer(0.3, os.kill, (pid, signal.SIGKILL))
    killer.start()
    worker = local.start("sleeps", "1.1")
    killer.join()
    assert server._forkserver_pid != pid
    os.kill(worker, signal.SIGKILL)
    (ended,) = exits_of(local, 1)
    assert (ended.exit_code, ended.is_lost) == (-signal.SIGKILL, False)


def test_exit_code_255_of_a_program_is_its_own(local: LocalBench) -> None:
    local.start("exits_255")
    (ended,) = exits_of(local, 1)
    assert (ended.exit_code, ended.is_lost) == (255, False)


def test_one_that_ended_while_another_was_started_is_not_lost(local: LocalBench) -> None:
    local.start("exits_3")
    # As it does at each start, multiprocessing reads the exit codes that have come.
    until(lambda: not multiprocessing.active_children(), "its exit code is read")
    (ended,) = exits_of(local, 1)
    assert (ended.exit_code, ended.is_lost) == (3, False)


def test_255_that_was_read_while_another_was_started_is_the_programs_own(
    local: LocalBench,
) -> None:
    local.start("exits_255")
    until(lambda: not multiprocessing.active_children(), "its exit code is read")
    (ended,) = exits_of(local, 1)
    assert (ended.exit_code, ended.is_lost) == (255, False)


def test_sigterm_ends_neither_the_server_nor_the_process_that_waits(local: LocalBench) -> None:
    local.start("sleeps", "1.1")
    waiting = local.forked_ahead()
    server: Any = forkserver._forkserver
    pid: int = server._forkserver_pid
    for each in (pid, waiting):
        os.kill(each, signal.SIGTERM)
    assert local.start("exits_3", "2.1") == waiting
    (ended,) = exits_of(local, 1)
    assert (ended.attempt_id, ended.exit_code) == (AttemptId("2.1"), 3)
    assert server._forkserver_pid == pid
    assert is_process_alive(pid)


def test_stray_that_does_not_go_is_not_looked_for_all_the_time(
    local: LocalBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []

    def none_goes(*_: object) -> bool:
        looks.append(1)
        assert len(looks) < 1000
        return True

    monkeypatch.setattr("tuner.launch.local_host.launcher.end_strays", none_goes)
    for _ in range(1000):
        local.look()
    assert len(looks) < 100
    monkeypatch.undo()
