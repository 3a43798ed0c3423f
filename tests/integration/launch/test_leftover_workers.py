"""Processes that a dead dispatcher has left: waited for, then killed, then gone on without."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tuner.host.process_identity import ProcessIdentity, own_process
from tuner.launch.local_host.leftover_workers import (
    GIVE_UP_AFTER_S,
    KILL_AFTER_S,
    Remains,
    _holders,
    hold,
)

# Forks, so that the lock is held by a child that outlives whoever took it.
HOLDER = """
import os, sys, time
from pathlib import Path
from tuner.launch.local_host.leftover_workers import hold

hold(Path(sys.argv[1]))
if child := os.fork():
    print(child, flush=True)
    os._exit(0)
time.sleep(600)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "dispatchers"


@pytest.fixture
def dead() -> ProcessIdentity:
    """A process that had this one's pid before."""
    own = own_process()
    return replace(own, start_ticks=own.start_ticks - 1)


class Watch:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.said: list[str] = []


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def remains(folder: Path, watch: Watch) -> Remains:
    return Remains(folder, watch.said.append, lambda: watch.now_s)


@pytest.fixture
def holder(
    folder: Path, dead: ProcessIdentity, remains: Remains, monkeypatch: pytest.MonkeyPatch
) -> Iterator[int]:
    """A process that a child of a worker of the dead dispatcher is."""
    monkeypatch.setattr("tuner.launch.local_host.leftover_workers.own_process", lambda: dead)
    file = Remains(folder, print).add_own()
    assert file is not None
    words = [sys.executable, "-c", HOLDER, str(file)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        yield pid
        subprocess.run(["kill", "-9", str(pid)], check=False, capture_output=True)


def test_processes_that_stay_are_killed_after_a_time(
    remains: Remains, dead: ProcessIdentity, holder: int, watch: Watch
) -> None:
    assert remains.are_left_by(dead)
    assert watch.said == []
    watch.now_s = 2.0
    assert remains.are_left_by(dead)
    assert watch.said == [
        f"Waiting for the worker processes of the dispatcher that died (pid {dead.pid}) to end."
    ]
    watch.now_s = KILL_AFTER_S
    assert remains.are_left_by(dead)
    assert watch.said[1].endswith(
        f"did not end within {KILL_AFTER_S:g} s and are killed: pid {holder}."
    )
    # Here on the real clock, which is far from the end of the wait.
    remains.wait()
    assert not remains.are_left_by(dead)
    assert len(watch.said) == 2


def test_another_dispatcher_that_looks_at_the_same_moment_is_not_killed(
    remains: Remains,
    dead: ProcessIdentity,
    holder: int,
    watch: Watch,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has the file open for an instant, to see whether it is locked."""
    holders = _holders
    with subprocess.Popen(["sleep", "600"]) as other:
        at_first = [other.pid]

        def holders_and_other(file: Path) -> Iterator[int]:
            yield from holders(file)
            if at_first:
                yield at_first.pop()

        monkeypatch.setattr("tuner.launch.local_host.leftover_workers._holders", holders_and_other)
        assert remains.are_left_by(dead)
        watch.now_s = KILL_AFTER_S
        assert remains.are_left_by(dead)
        try:
            assert other.poll() is None
            assert watch.said[-1].endswith(f"are killed: pid {holder}.")
        finally:
            other.kill()


def test_what_outlives_even_that_is_waited_for_no_longer(
    remains: Remains,
    dead: ProcessIdentity,
    holder: int,
    watch: Watch,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "tuner.launch.local_host.leftover_workers.os.kill", lambda pid, number: None
    )
    assert remains.are_left_by(dead)
    watch.now_s = GIVE_UP_AFTER_S
    assert not remains.are_left_by(dead)
    assert watch.said[-1].endswith("Trials start without waiting for them.")
    assert not remains.are_left_by(dead)


def test_a_living_dispatcher_and_those_of_other_hosts_are_not_waited_for(
    folder: Path, watch: Watch
) -> None:
    own = Remains(folder, watch.said.append)
    file = own.add_own()
    assert file is not None
    hold(file)
    own.wait()
    elsewhere = file.with_name("elsewhere")
    elsewhere.write_text(file.read_text().replace('"host": "', '"host": "not-'))
    hold(elsewhere)
    own.wait()
    (folder / "damaged").write_text("{")
    own.wait()
    assert (watch.said, file.exists()) == ([], True)
    own.remove_own()
    assert not file.exists()
