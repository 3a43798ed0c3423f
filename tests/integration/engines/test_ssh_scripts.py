"""The scripts that run on a host over ssh, on this machine: which dispatchers count as alive."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tuner.engines.ssh.script import SEPARATOR, cancel_script, look_script, start_script
from tuner.host.process_identity import start_ticks_of

STUDY, HOST = "small", "gpu01"


def bash(script: str, home: Path) -> str:
    done = subprocess.run(
        ["bash", "-s"],
        input=script,
        env={**os.environ, "HOME": str(home)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def fields(home: Path) -> list[list[str]]:
    """Number, whether it is alive, whether it was asked to end, exit code, of each allocation."""
    lines = bash(look_script(STUDY, HOST), home).splitlines()
    return [line.split(SEPARATOR)[:4] for line in lines]


def note(home: Path, number: int, pid: int, ticks: int) -> Path:
    """The state of an allocation, as its script leaves it."""
    state = home / ".tuner" / "allocations" / STUDY / HOST / str(number)
    state.mkdir(parents=True)
    (state / "pid").write_text(f"{pid} {ticks}\n")
    return state


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def become_zombie(process: subprocess.Popen[bytes]) -> None:
    """Kills it, and does not reap it, as PID 1 of a host may not."""
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def test_a_zombie_is_not_alive(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    ticks = start_ticks_of(sleeper.pid)
    assert ticks is not None
    note(tmp_path, 0, sleeper.pid, ticks)
    assert fields(tmp_path) == [["0", "1", "", ""]]
    become_zombie(sleeper)
    assert Path(f"/proc/{sleeper.pid}/stat").exists()
    assert fields(tmp_path) == [["0", "", "", ""]]
    bash(cancel_script(STUDY, HOST, [0]), tmp_path)
    assert fields(tmp_path) == [["0", "", "1", ""]]


def test_another_process_of_the_same_pid_is_not_alive(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    ticks = start_ticks_of(sleeper.pid)
    assert ticks is not None
    note(tmp_path, 3, sleeper.pid, ticks + 1)
    assert fields(tmp_path) == [["3", "", "", ""]]


def test_a_dispatcher_starts_in_the_place_of_a_zombie(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    ticks = start_ticks_of(sleeper.pid)
    assert ticks is not None
    state = note(tmp_path, 0, sleeper.pid, ticks)
    script = start_script(
        STUDY,
        HOST,
        0,
        name="gpu01/small/0",
        command=("touch", "begun"),
        folder=str(tmp_path),
        environment={},
        setup=(),
        time_s=None,
    )
    bash(script, tmp_path)
    assert not (tmp_path / "begun").exists()
    become_zombie(sleeper)
    bash(script, tmp_path)
    give_up_at_s = time.monotonic() + 30.0
    while not (state / "exit").exists():
        assert time.monotonic() < give_up_at_s, (state / "log").read_text()
        time.sleep(0.05)
    assert (tmp_path / "begun").exists()
    assert fields(tmp_path) == [["0", "", "", "0"]]
