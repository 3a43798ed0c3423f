"""A full or read-only disk: a message, and nothing is lost."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator

import pytest

from tests.e2e.mistakes.refusals import DEVICES_LINE, ECHO, check_refused
from tests.e2e.study_folder import StudyFolder, wait_until
from tuner.errors import EXIT_BAD_INPUT, EXIT_BUDGET_REACHED, EXIT_STUDY_FAILED

TINY_DISK = "size=2m"


# -- the disk --------------------------------------------------------------------------------
@pytest.fixture
def tiny_disk(study_folder: StudyFolder) -> Iterator[StudyFolder]:
    """The user's folder on a disk of its own with room for 2 MB."""
    mount = ["mount", "-t", "tmpfs", "-o", TINY_DISK, "tuner-test", str(study_folder.path)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        reason = f"needs the right to mount a file system: {mounted.stderr.strip()}"
        if "CI" in os.environ:
            pytest.fail(reason)
        pytest.skip(reason)
    try:
        yield study_folder
    finally:
        study_folder.end_all()
        subprocess.run(["umount", "--lazy", str(study_folder.path)], check=True)


FILLS_THE_DISK = """
from pathlib import Path

def train(trial):
    if trial.number == 3:
        try:
            with open("checkpoint", "wb") as file:
                while True:
                    file.write(bytes(4096))
                    file.flush()
        except OSError:
            pass
    return trial.params["x"]
"""


def test_disk_that_gets_full(tiny_disk: StudyFolder) -> None:
    tiny_disk.write("forecast.py", FILLS_THE_DISK)
    tiny_disk.study(budget={"trials": 8}, devices="cpu:1")
    running = tiny_disk.start()
    wait_until(lambda: "no trial starts" in running.out, "it says so")
    assert "The disk is full: the database could not be written" in running.out
    assert tiny_disk.states()[:3] == ["COMPLETE"] * 3
    (tiny_disk.path / "checkpoint").unlink()
    ended = running.wait()
    assert (ended.code, ended.err) == (EXIT_BUDGET_REACHED, "")
    assert tiny_disk.states() == ["COMPLETE"] * 8


def test_ctrl_c_while_the_disk_is_full(tiny_disk: StudyFolder) -> None:
    tiny_disk.write("forecast.py", FILLS_THE_DISK)
    tiny_disk.study(budget={"trials": 8}, devices="cpu:1")
    running = tiny_disk.start()
    wait_until(lambda: "no trial starts" in running.out, "it says so")
    running.signal(signal.SIGINT)
    wait_until(lambda: "Stopping: " in running.out, "it has heard it")
    running.signal(signal.SIGINT)
    ended = running.wait()
    assert ended.code == EXIT_STUDY_FAILED
    assert re.fullmatch(
        "The database could not be written at the end: The disk is full: the database could not "
        r"be written \(storage sqlite:///.*small.db\). Not in it: trial 3 \(.*\). Trials whose end "
        "it does not know are run again when the study is started again.\n",
        ended.err,
    )
    (tiny_disk.path / "checkpoint").unlink()
    assert tiny_disk.states()[:3] == ["COMPLETE"] * 3
    tiny_disk.write("forecast.py", "def train(trial):\n    return trial.params['x']\n")
    assert tiny_disk.tune().code == EXIT_BUDGET_REACHED
    assert tiny_disk.states() == ["COMPLETE"] * 8


def test_read_only_folder(tiny_disk: StudyFolder) -> None:
    tiny_disk.study(trial=ECHO)
    subprocess.run(["mount", "-o", f"remount,ro,{TINY_DISK}", str(tiny_disk.path)], check=True)
    check_refused(
        tiny_disk.tune(),
        f"study.yaml: Logs go to {tiny_disk.path / 'tuner-files' / 'small'}, which cannot be "
        "made: Read-only file system. Make the study file's folder writable, or copy the file to "
        "one that is.",
        out=DEVICES_LINE,
    )
    check_refused(
        tiny_disk.tuner("init", "new.yaml"),
        "new.yaml: cannot be written: Read-only file system.",
    )


def test_database_on_a_read_only_disk(tiny_disk: StudyFolder) -> None:
    # The study is elsewhere; only its database is on the disk that cannot be written.
    tiny_disk.study(trial=ECHO)
    assert tiny_disk.tune().code == EXIT_BUDGET_REACHED
    subprocess.run(["mount", "-o", f"remount,ro,{TINY_DISK}", str(tiny_disk.path)], check=True)
    elsewhere = StudyFolder(path=tiny_disk.path.with_name("elsewhere"), env=tiny_disk.env)
    elsewhere.path.mkdir()
    elsewhere.study(trial=ECHO, storage=f"sqlite:///{tiny_disk.path / 'small.db'}")
    ended = elsewhere.tune("--trials", "5")
    assert (ended.code, ended.out) == (EXIT_BAD_INPUT, DEVICES_LINE)
    assert ended.err == (
        "The database file cannot be opened: its folder is missing or not writable. "
        "Make it writable, or name another storage "
        f"(storage sqlite:///{tiny_disk.path / 'small.db'})\n"
    )
