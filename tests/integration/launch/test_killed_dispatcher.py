"""A dispatcher that is killed with -9 leaves nothing behind: no worker, guardian or fork server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.launch.conftest import children_of, command_of, is_process_alive, until

PROJECT = Path(__file__).parents[3]
STUDY = """
study: sleepers
trial: {function: "sleepers:train"}
search_space: {x: {type: float, low: 0, high: 1}}
devices: cpu:2
"""
#: Of trials that ignore SIGTERM.
COMMAND = "trap : TERM; touch ready-{trial_number}; while :; do sleep 600; done"
SLEEPERS = """
import pathlib, signal, subprocess, time

def train(trial):
    if trial.number == 1:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for is_apart in (False, True):
        subprocess.Popen(["sleep", "600"], start_new_session=is_apart)
    pathlib.Path(f"ready-{trial.number}").touch()
    time.sleep(600)

def loop(trial):
    pathlib.Path(f"ready-{trial.number}").touch()
    sum(range(10**13))
"""
#: Nothing of it hears a signal that has a handler, and nothing speaks.
SILENT = STUDY.replace("sleepers:train", "sleepers:loop")
COMMANDS = STUDY.replace('function: "sleepers:train"', f"command: {['sh', '-c', COMMAND]}")


TELLS = """
import pathlib

def train(trial):
    return 1.0 if trial.number == 0 else __import__("time").sleep(600)
"""
#: A hook that ignores SIGTERM, with a child that does not.
HOOK = "on_best: [sh, -c, 'trap : TERM; sleep 600 & touch told; while :; do sleep 600; done']\n"


@pytest.fixture
def study_text() -> str:
    return STUDY


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """For what a dispatcher keeps in TMPDIR; a socket's path is short."""
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def dispatcher(
    tmp_path: Path, short_folder: Path, study_text: str
) -> Iterator[subprocess.Popen[bytes]]:
    (tmp_path / "study.yaml").write_text(study_text)
    (tmp_path / "sleepers.py").write_text(SLEEPERS)
    (tmp_path / "tells.py").write_text(TELLS)
    with (tmp_path / "output").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tuner.run", "study.yaml"],
            cwd=tmp_path,
            env={
                **os.environ,
                "PYTHONPATH": str(Path(__file__).parents[3]),
                "TMPDIR": str(short_folder),
            },
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        yield process
        process.kill()
        process.wait()


def test_nothing_lives_on_after_kill_9(
    dispatcher: subprocess.Popen[bytes], tmp_path: Path, short_folder: Path
):
    ready = [tmp_path / f"ready-{number}" for number in range(2)]
    until(lambda: all(file.exists() for file in ready), "two trials run")
    assert list(short_folder.glob("tuner-*"))
    family = children_of(dispatcher.pid)
    assert len(family) >= 8, "guardian, fork server, two workers and two grandchildren of each"
    dispatcher.send_signal(signal.SIGKILL)
    dispatcher.wait()
    until(lambda: not any(map(is_process_alive, family)), "the whole family is gone")
    assert not list(short_folder.glob("tuner-*")), "no folder of sockets is left"


@pytest.mark.parametrize(
    "study_text",
    [
        # By day: where nothing of it hears a signal.
        pytest.param(STUDY, id="sleep", marks=pytest.mark.nightly),
        pytest.param(SILENT, id="loop-in-c"),
        pytest.param(COMMANDS, id="command"),
    ],
)
def test_nor_where_its_guardian_is_killed_with_it(
    dispatcher: subprocess.Popen[bytes], tmp_path: Path
):
    ready = [tmp_path / f"ready-{number}" for number in range(2)]
    until(lambda: all(file.exists() for file in ready), "two trials run")
    family = children_of(dispatcher.pid)
    (guardian,) = (pid for pid in family if "guardian.py" in command_of(pid))
    # Stopped, it cannot start another one in between.
    dispatcher.send_signal(signal.SIGSTOP)
    os.kill(guardian, signal.SIGKILL)
    dispatcher.send_signal(signal.SIGKILL)
    dispatcher.wait()
    until(lambda: not any(map(is_process_alive, family)), "the whole family is gone")


@pytest.mark.parametrize("study_text", [COMMANDS], ids=["command"])
def test_commands_end_without_a_guardian_that_works(
    dispatcher: subprocess.Popen[bytes], tmp_path: Path
):
    ready = [tmp_path / f"ready-{number}" for number in range(2)]
    until(lambda: all(file.exists() for file in ready), "two trials run")
    family = children_of(dispatcher.pid)
    (guardian,) = (pid for pid in family if "guardian.py" in command_of(pid))
    os.kill(guardian, signal.SIGSTOP)
    dispatcher.send_signal(signal.SIGKILL)
    dispatcher.wait()
    others = [pid for pid in family if pid != guardian]
    until(lambda: not any(map(is_process_alive, others)), "the commands are gone")
    os.kill(guardian, signal.SIGCONT)
    until(lambda: not is_process_alive(guardian), "so is the guardian")


@pytest.mark.parametrize("study_text", [STUDY.replace("sleepers:", "tells:") + HOOK], ids=["hook"])
def test_programs_of_hooks_are_ended_too(dispatcher: subprocess.Popen[bytes], tmp_path: Path):
    until((tmp_path / "told").exists, "the hook runs")
    family = children_of(dispatcher.pid)
    hooks = [pid for pid in family if "sleep 600 & touch told" in command_line(pid)]
    assert hooks
    dispatcher.send_signal(signal.SIGKILL)
    dispatcher.wait()
    until(lambda: not any(map(is_process_alive, family)), "the whole family is gone")


def command_line(pid: int) -> str:
    """Empty for one that has ended since it was listed."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def test_nor_where_its_guardian_was_killed_before(
    dispatcher: subprocess.Popen[bytes], tmp_path: Path
):
    def guardians() -> set[int]:
        return {pid for pid in children_of(dispatcher.pid) if "guardian.py" in command_of(pid)}

    ready = [tmp_path / f"ready-{number}" for number in range(2)]
    until(lambda: all(file.exists() for file in ready), "two trials run")
    (first,) = guardians()
    os.kill(first, signal.SIGKILL)
    until(lambda: bool(guardians() - {first}), "there is another one")
    family = children_of(dispatcher.pid)
    dispatcher.send_signal(signal.SIGKILL)
    dispatcher.wait()
    until(lambda: not any(map(is_process_alive, family)), "the whole family is gone")
