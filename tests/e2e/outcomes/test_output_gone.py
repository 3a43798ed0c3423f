"""Output that cannot be written does not end a study."""

from __future__ import annotations

import os
import pty
import select
import shlex
import subprocess
import sys

import pytest

from tests.e2e.study_folder import TIMEOUT_S, Ended, StudyFolder, wait_until
from tuner.errors import EXIT_BUDGET_REACHED, EXIT_STUDY_FAILED

RUN = [sys.executable, "-m", "tuner.run", "study.yaml"]
TRAIN = """
import pathlib, time

def train(trial):
    pathlib.Path("began").touch()
    while not pathlib.Path("go").exists():
        time.sleep(0.01)
    return trial.params["x"]
"""


@pytest.fixture
def folder(study_folder: StudyFolder) -> StudyFolder:
    study_folder.write("forecast.py", TRAIN)
    study_folder.study()
    return study_folder


def in_shell(folder: StudyFolder, command: list[str], rest: str) -> Ended:
    return folder._start(["bash", "-c", f"{shlex.join(command)} {rest}"]).wait()


#: Both streams at once by day, each of them by night.
ONE_STREAM = [
    pytest.param(rest, marks=pytest.mark.nightly) for rest in ("> /dev/full", "2> /dev/full")
]


@pytest.mark.parametrize("rest", ["> /dev/full 2>&1", ">&-", *ONE_STREAM])
def test_full_disk_under_the_output(folder: StudyFolder, rest: str) -> None:
    folder.write("go", "")
    ended = in_shell(folder, RUN, rest)
    assert (ended.code, ended.err) == (EXIT_BUDGET_REACHED, "")
    assert folder.states() == ["COMPLETE"] * 4


def test_reader_of_a_pipe_that_goes_away(folder: StudyFolder) -> None:
    folder.write("go", "")
    ended = in_shell(folder, RUN, "| head -1; exit ${PIPESTATUS[0]}")
    assert (ended.code, ended.err) == (EXIT_BUDGET_REACHED, "")
    assert ended.out == "devices: cpu:0, cpu:1\n"
    assert folder.states() == ["COMPLETE"] * 4


def test_other_commands_say_that_the_disk_is_full(folder: StudyFolder) -> None:
    folder.write("go", "")
    assert folder.tune().code == EXIT_BUDGET_REACHED
    best = [sys.executable, "-m", "tuner.best", "study.yaml"]
    ended = in_shell(folder, best, "> /dev/full")
    assert ended.code == EXIT_STUDY_FAILED
    assert ended.err == "The output cannot be written: No space left on device.\n"


#: Lines are written to a dumb terminal as to a pipe, whose reader goes away by day.
DUMB = pytest.param("dumb", marks=pytest.mark.nightly)


@pytest.mark.parametrize("term", ["xterm-256color", DUMB])
def test_terminal_that_is_closed(folder: StudyFolder, term: str) -> None:
    """The kernel sends SIGHUP to all that runs in it, and from then on writing is EIO."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder.path)
        os.execvpe(RUN[0], RUN, folder.environment({"TERM": term}))
    try:
        wait_until(lambda: _reads(terminal) and "began" in folder.files(), "a trial runs")
        os.close(terminal)
        folder.write("go", "")
        wait_until(lambda: folder.states() == ["COMPLETE"] * 4, "all trials have completed")
        wait_until(lambda: os.waitpid(pid, os.WNOHANG)[0] == pid, "the command has ended")
    finally:
        subprocess.run(["kill", "-KILL", str(pid)], stderr=subprocess.DEVNULL, check=False)


def _reads(terminal: int) -> bool:
    """Takes what was drawn, so that nobody waits for room."""
    while select.select([terminal], [], [], 0.0)[0]:
        os.read(terminal, 65536)
    return TIMEOUT_S > 0
