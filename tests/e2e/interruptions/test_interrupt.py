"""Ctrl-C once and twice, SIGTERM, kill -9, and a second terminal: nothing lost, nothing left."""

from __future__ import annotations

import json
import re
import signal
import socket

import psutil
import pytest

from tests.e2e.study_folder import Running, StudyFolder, wait_until
from tuner.errors import EXIT_BAD_INPUT, EXIT_BUDGET_REACHED, EXIT_INTERRUPTED

N_TRIALS = 4
TO_GO_ON = "Stopped; everything is saved. To continue: python -m tuner.run study.yaml\n"
# Works until the file `go` is there, and says which attempts have begun.
PATIENT = """
import os, subprocess, time
from pathlib import Path

import optuna

def train(trial):
    attempt = os.environ["TUNER_ATTEMPT_NUMBER"]
    Path(f"begun-{trial.number}-{attempt}").touch()
    step = 0
    while not Path("go").exists():
        trial.report(trial.params["x"], step)
        if trial.should_prune():
            raise optuna.TrialPruned
        step += 1
        time.sleep(0.02)
    return trial.params["x"]
"""
# Neither listens to the tuner nor to signals, and has a child that does not either.
STUBBORN = """
import signal, subprocess, time
from pathlib import Path

def train(trial):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if not Path("go").exists():
        child = subprocess.Popen(["sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"])
        Path(f"child-{trial.number}").write_text(str(child.pid))
        Path(f"begun-{trial.number}-1").touch()
    while not Path("go").exists():
        time.sleep(0.02)
    return trial.params["x"]
"""


def begin(folder: StudyFolder, module: str, *, is_open: bool = False, **trial: object) -> Running:
    """Starts the study (open: with no budget) and waits until two trials are at work."""
    folder.write("forecast.py", module)
    folder.study(
        trial={"function": "forecast:train", **trial},
        pruner={"name": "none"},
        budget=None if is_open else {"trials": N_TRIALS},
    )
    running = folder.start()
    wait_until(
        lambda: {"begun-0-1", "begun-1-1"} <= folder.files() or running.process.poll() is not None,
        "two trials are at work",
    )
    assert running.process.poll() is None, running.wait()
    return running


def continue_to_the_end(folder: StudyFolder) -> None:
    folder.write("go", "")
    ended = folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert folder.states() == ["COMPLETE"] * N_TRIALS


def processes_of(running: Running) -> list[psutil.Process]:
    """The dispatcher and all below it: fork server, guardian, workers, what they started."""
    dispatcher = psutil.Process(running.process.pid)
    return [dispatcher, *dispatcher.children(recursive=True)]


def is_gone(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_once_lets_trials_end_and_the_same_command_continues(
    study_folder: StudyFolder, number: signal.Signals
) -> None:
    running = begin(study_folder, PATIENT)
    running.signal(number)
    ended = running.wait()

    assert (ended.code, ended.err) == (EXIT_INTERRUPTED, "")
    assert ended.out.endswith(TO_GO_ON)
    assert "interrupted: 0 completed, 0 pruned, 0 failed\n" in ended.out
    cancelled = study_folder.attempts()
    assert [(a.trial, a.number, a.outcome, a.cause) for a in cancelled] == [
        (0, 1, "cancelled", "interrupted"),
        (1, 1, "cancelled", "interrupted"),
    ]
    assert study_folder.states() == ["WAITING", "WAITING"]

    continue_to_the_end(study_folder)
    attempts = study_folder.attempts()
    assert [(a.trial, a.number, a.outcome) for a in attempts] == [
        (0, 1, "cancelled"),
        (0, 2, "completed"),
        (1, 1, "cancelled"),
        (1, 2, "completed"),
        (2, 1, "completed"),
        (3, 1, "completed"),
    ]
    for first, second in (attempts[0:2], attempts[2:4]):
        assert json.loads(first.params) == json.loads(second.params)
        assert first.seed != second.seed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_twice_kills_what_listens_to_nothing(
    study_folder: StudyFolder, number: signal.Signals
) -> None:
    running = begin(study_folder, STUBBORN, is_open=True, stop_grace="10m")
    assert "budget: open; the study runs until Ctrl-C\n" in running.out
    everyone = processes_of(running)
    children = [int((study_folder.path / f"child-{i}").read_text()) for i in range(2)]
    assert set(children) <= {process.pid for process in everyone}
    of_trials = [psutil.Process(pid) for pid in children]
    of_trials += [process for child in of_trials if (process := child.parent()) is not None]
    running.signal(number)
    wait_until(lambda: "Ctrl-C again kills them" in running.out, "the first one is heard")
    # Not of all processes: each `sleep` of the shells ends by itself.
    assert not any(is_gone(process) for process in of_trials)
    running.signal(number)
    ended = running.wait()

    assert (ended.code, ended.err) == (EXIT_INTERRUPTED, "")
    assert ended.out.endswith(TO_GO_ON)
    wait_until(lambda: all(map(is_gone, everyone)), "all processes are gone")
    assert [a.outcome for a in study_folder.attempts()] == ["cancelled"] * 2
    assert study_folder.states() == ["WAITING", "WAITING"]


def test_interrupt_while_the_program_is_imported(study_folder: StudyFolder) -> None:
    study_folder.write(
        "forecast.py",
        "import time\nfrom pathlib import Path\n"
        "Path('importing').touch()\n"
        "while not Path('go').exists():\n    time.sleep(0.02)\n"
        "def train(trial):\n    return trial.params['x']\n",
    )
    study_folder.study()
    running = study_folder.start()
    wait_until(lambda: "importing" in study_folder.files(), "the module is imported")
    everyone = processes_of(running)
    running.signal(signal.SIGINT)
    ended = running.wait()

    message = "Interrupted before a trial was started. Nothing is lost.\n"
    assert (ended.code, ended.err) == (EXIT_INTERRUPTED, message)
    wait_until(lambda: all(map(is_gone, everyone)), "all processes are gone")
    continue_to_the_end(study_folder)


@pytest.mark.parametrize("verb", ["run", "best"])
def test_interrupt_while_the_command_line_is_imported(study_folder: StudyFolder, verb: str) -> None:
    study_folder.study()
    study_folder.is_cold = True
    # The first that the command line imports of others.
    study_folder.write(
        "typer.py",
        "import time\nfrom pathlib import Path\nPath('importing').touch()\ntime.sleep(600)\n",
    )
    running = study_folder.start_python("-m", f"tuner.{verb}", "study.yaml")
    wait_until(lambda: "importing" in study_folder.files(), "it is imported")
    running.signal(signal.SIGINT)
    ended = running.wait()
    message = "Interrupted before a trial was started. Nothing is lost.\n"
    assert (ended.code, ended.out, ended.err) == (EXIT_INTERRUPTED, "", message)


def test_killed_dispatcher_leaves_no_process_and_the_same_command_continues(
    study_folder: StudyFolder,
) -> None:
    running = begin(study_folder, STUBBORN)
    everyone = processes_of(running)
    running.signal(signal.SIGKILL)
    running.wait()
    wait_until(lambda: all(map(is_gone, everyone)), "all processes are gone")

    assert study_folder.states() == ["RUNNING", "RUNNING"]
    continue_to_the_end(study_folder)
    attempts = study_folder.attempts()
    assert [(a.trial, a.number, a.outcome, a.cause) for a in attempts] == [
        (0, 1, "lost", "dispatcher_gone"),
        (0, 2, "completed", None),
        (1, 1, "lost", "dispatcher_gone"),
        (1, 2, "completed", None),
        (2, 1, "completed", None),
        (3, 1, "completed", None),
    ]
    assert {a.state for a in attempts} == {"finished"}
    assert study_folder.rows("select count(*) from tuner_leases where released_at is null") == [
        (0,)
    ]


def test_second_terminal_is_refused_while_the_first_works(study_folder: StudyFolder) -> None:
    running = begin(study_folder, PATIENT)
    second = study_folder.tune()
    assert (second.code, second.out) == (EXIT_BAD_INPUT, "devices: cpu:0, cpu:1\n")
    assert re.fullmatch(
        rf"This study is being run already, on {re.escape(socket.gethostname())} "
        rf"\(pid {running.process.pid}, since \d{{4}}-\d\d-\d\d \d\d:\d\d UTC\)\. Wait for it, "
        r"end it with Ctrl-C, or start another study with --study NEW_NAME\.\n",
        second.err,
    )
    study_folder.write("go", "")
    assert running.wait().code == EXIT_BUDGET_REACHED
    assert study_folder.states() == ["COMPLETE"] * N_TRIALS
    assert [a.outcome for a in study_folder.attempts()] == ["completed"] * N_TRIALS
