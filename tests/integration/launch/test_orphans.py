"""Processes in sessions of their own end with the launcher, whatever dies while it looks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from tests.contract.launch.conftest import LocalBench, is_process_alive, until
from tuner.launch.local_host import orphans

#: Starts a process from a thread that is not the main one.
OF_A_THREAD = """
import subprocess, sys, threading, time
def start():
    print(subprocess.Popen(["sleep", "600"]).pid, flush=True)
    time.sleep(600)
threading.Thread(target=start).start()
"""


def test_rank_whose_starter_dies_during_the_look_ends_on_close(
    local: LocalBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.start("as_a_starter_with_a_session_does")
    rank = psutil.Process(local.grandchild)
    starter = rank.ppid()
    worker = psutil.Process(starter).ppid()
    server = psutil.Process(worker).ppid()
    children_of = orphans._children

    def starter_dies_after(pid: int) -> Iterator[int]:
        found = list(children_of(pid))
        if pid == server and starter in found and rank.ppid() == starter:
            os.kill(starter, signal.SIGKILL)
            until(lambda: rank.ppid() == server, "the rank has been taken over")
        yield from found

    monkeypatch.setattr(orphans, "_children", starter_dies_after)
    local.launcher.close()
    until(lambda: not is_process_alive(rank.pid), "the rank has ended")


def test_child_of_a_thread_is_found() -> None:
    argv = [sys.executable, "-c", OF_A_THREAD]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        try:
            assert child in orphans._children(process.pid)
        finally:
            os.kill(child, signal.SIGKILL)
            process.kill()


def test_child_without_the_variables_of_its_attempt_ends_on_close(
    local: LocalBench,
) -> None:
    """As `env -i` starts one."""
    local.start("without_variables")
    child = local.grandchild
    local.launcher.close()
    until(lambda: not is_process_alive(child), "it has ended")
