"""SIGTERM from a batch system, which may reach every process at once: no trial fails for it."""

from __future__ import annotations

import os
import signal

import psutil
import pytest

from tests.e2e.study_folder import AttemptRecord, StudyFolder, wait_until
from tuner.errors import EXIT_BUDGET_REACHED, EXIT_INTERRUPTED

# The first attempt of each trial waits to be ended; the next till "released" is there.
WAITS = """
import sys, time
from pathlib import Path

def train(trial):
    go(trial.number, trial.attempt_number)
    return 1.0

def go(number, attempt):
    if attempt == 1:
        Path(f"ready-{number}").touch()
        time.sleep(600)
    while not Path("released").exists():
        time.sleep(0.05)

if __name__ == "__main__":
    number = int(sys.argv[1])
    go(number, 2 if Path(f"ready-{number}").exists() else 1)
    print('{"step": 1, "value": 1.0}')
"""
PROGRAMS = {
    "function": {"function": "forecast:train"},
    "command": {"command": ["python", "forecast.py", "{trial_number}"]},
}


def a_study(folder: StudyFolder, program: str) -> None:
    folder.write("forecast.py", WAITS)
    folder.study(trial=PROGRAMS[program], devices="cpu:2", budget={"trials": 2})


def wait_for_both(folder: StudyFolder) -> None:
    ready = [folder.path / f"ready-{number}" for number in range(2)]
    wait_until(lambda: all(file.exists() for file in ready), "both trials wait")
    wait_until(lambda: all(one.state == "running" for one in folder.attempts()), "both are known")


def ends_of(attempts: list[AttemptRecord]) -> list[tuple[int, int, str | None, str | None]]:
    return [(one.trial, one.number, one.outcome, one.cause) for one in attempts]


@pytest.mark.parametrize("program", sorted(PROGRAMS))
def test_trials_that_are_told_to_end_are_run_again(study_folder: StudyFolder, program: str) -> None:
    a_study(study_folder, program)
    study_folder.write("released", "")
    running = study_folder.start()
    wait_for_both(study_folder)
    for attempt in study_folder.attempts():
        assert attempt.pid is not None
        os.killpg(attempt.pid, signal.SIGTERM)
    ended = running.wait()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert ends_of(study_folder.attempts()) == [
        (trial, number, outcome, cause)
        for trial in range(2)
        for number, outcome, cause in ((1, "cancelled", "signal"), (2, "completed", None))
    ]


@pytest.mark.parametrize("program", sorted(PROGRAMS))
def test_sigterm_to_every_process_leaves_the_trials_to_the_next_start(
    study_folder: StudyFolder, program: str
) -> None:
    """A trial that ends before the dispatcher is told may have its next attempt meanwhile."""
    a_study(study_folder, program)
    running = study_folder.start()
    wait_for_both(study_folder)
    dispatcher = psutil.Process(running.process.pid)
    for process in [*dispatcher.children(recursive=True), dispatcher]:
        process.terminate()
    ended = running.wait()
    assert ended.code == EXIT_INTERRUPTED, ended.text
    assert study_folder.states() == ["WAITING"] * 2
    study_folder.write("released", "")
    assert study_folder.tune().code == EXIT_BUDGET_REACHED
    assert study_folder.states() == ["COMPLETE"] * 2
