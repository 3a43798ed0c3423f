"""Every way in which a trial can end badly has its own outcome, cause and last lines of output."""

from __future__ import annotations

import json

import pytest

from tests.e2e.study_folder import AttemptRecord, StudyFolder
from tuner.errors import EXIT_BAD_INPUT, EXIT_BUDGET_REACHED, EXIT_STUDY_FAILED

FUNCTIONS = """
import os, resource, signal, sys, time

import optuna

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

def train(trial):
    how = trial.params["how"]
    print(f"this is {how}")
    match how:
        case "fine":
            return 1.0
        case "once":
            if os.environ["TUNER_ATTEMPT_NUMBER"] == "1":
                raise RuntimeError("only the first time")
            return 2.0
        case "raise":
            raise ValueError("the learning rate is a colour")
        case "nan":
            return float("nan")
        case "memory":
            raise MemoryError("no room")
        case "exit":
            sys.exit(3)
        case "gone":
            os._exit(4)
        case "signal":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "slow":
            while True:
                time.sleep(0.05)
        case "nothing":
            return None
        case "text":
            return "very good"
        case "prune":
            raise optuna.TrialPruned("it knows best")

def fail(trial):
    print("line before")
    raise ValueError("always")
"""
COMMAND = """
import json, os, resource, signal, sys, time

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
how = sys.argv[1]
print("this is", how)
match how:
    case "fine":
        print(json.dumps({"value": 1.0}))
    case "exit":
        sys.exit(3)
    case "raise":
        raise ValueError("the learning rate is a colour")
    case "signal":
        os.kill(os.getpid(), signal.SIGSEGV)
    case "nothing":
        pass
    case "nan":
        print('{"value": NaN}')
    case "slow":
        while True:
            time.sleep(0.05)
    case "memory":
        raise MemoryError("no room")
"""
#: how: outcome, cause, what the detail must hold, state of the trial, attempts
OF_FUNCTIONS = {
    "fine": ("completed", None, "", "COMPLETE", 1),
    "once": ("completed", None, "", "COMPLETE", 2),
    "raise": ("failed", "exception", "ValueError: the learning rate is a colour", "FAIL", 2),
    "nan": ("failed", "not_a_number", "The value of value is not a number (NaN).", "PRUNED", 2),
    "memory": ("out_of_memory", "host_memory", "MemoryError: no room", "PRUNED", 2),
    "exit": ("failed", "exit_code", "Exit code 3.", "FAIL", 2),
    "gone": ("failed", "exit_code", "Exit code 4.\nthis is gone", "FAIL", 2),
    "signal": ("failed", "signal", "Killed by SIGSEGV.\nthis is signal", "FAIL", 2),
    # One that ran out of its time would do so again.
    "slow": ("timed_out", "timeout", "It did not end within 2 s.\nthis is slow", "FAIL", 1),
    "nothing": ("failed", "no_result", "return or report a number", "FAIL", 2),
    "text": ("failed", "no_result", "'very good', which is not a number", "FAIL", 2),
    "prune": ("pruned", "program", "it knows best", "PRUNED", 1),
}
OF_COMMANDS = {
    "fine": ("completed", None, "", "COMPLETE", 1),
    "exit": ("failed", "exit_code", "Exit code 3.\nthis is exit", "FAIL", 1),
    "raise": ("failed", "exit_code", "ValueError: the learning rate is a colour", "FAIL", 1),
    "signal": ("failed", "signal", "Killed by SIGSEGV.\nthis is signal", "FAIL", 1),
    "nothing": ("failed", "no_result", "The last ones:\nthis is nothing", "FAIL", 1),
    "nan": ("failed", "not_a_number", "The value of value is not a number (NaN).", "PRUNED", 1),
    "slow": ("timed_out", "timeout", "It did not end within 2 s.\nthis is slow", "FAIL", 1),
    "memory": ("out_of_memory", "host_memory", "MemoryError: no room", "PRUNED", 2),
}


def by_choice(folder: StudyFolder) -> dict[str, list[AttemptRecord]]:
    """Attempts by the choice of `how`, oldest first."""
    found: dict[str, list[AttemptRecord]] = {}
    for attempt in folder.attempts():
        found.setdefault(json.loads(attempt.params)["how"], []).append(attempt)
    return found


def check(
    folder: StudyFolder, expected: dict[str, tuple[str, str | None, str, str, int]]
) -> dict[str, list[AttemptRecord]]:
    attempts = by_choice(folder)
    states = folder.states()
    last = {how: tried[-1] for how, tried in attempts.items()}
    found = {how: (a.outcome, a.cause, states[a.trial]) for how, a in last.items()}
    assert found == {how: (row[0], row[1], row[3]) for how, row in expected.items()}
    assert {how: len(tried) for how, tried in attempts.items()} == {
        how: row[4] for how, row in expected.items()
    }
    for how, row in expected.items():
        assert row[2] in last[how].detail
    return attempts


def grid_of(choices: list[str], trial: dict[str, object]) -> dict[str, object]:
    return {
        "trial": {"timeout": "2s", "stop_grace": "1s", **trial},
        "search_space": {"how": {"type": "categorical", "choices": choices}},
        "sampler": {"name": "grid", "seed": 0},
        "budget": {"trials": len(choices)},
    }


def test_functions(study_folder: StudyFolder) -> None:
    study_folder.write("forecast.py", FUNCTIONS)
    trial = {"function": "forecast:train", "retries": 1}
    study_folder.study(**grid_of(list(OF_FUNCTIONS), trial))
    ended = study_folder.tune()

    assert (ended.code, ended.err) == (EXIT_BUDGET_REACHED, "")
    n_failed = len(OF_FUNCTIONS) - 3
    assert f": 2 completed, 1 pruned, {n_failed} failed\n" in ended.out
    status = study_folder.tuner("status")
    assert f": 2 completed, 1 pruned, {n_failed} failed\n" in status.out
    attempts = check(study_folder, OF_FUNCTIONS)
    once = attempts["once"]
    assert once[0].outcome == "failed"
    assert "RuntimeError: only the first time" in once[0].detail
    assert once[0].seed != once[1].seed

    failed = attempts["raise"][0]
    logged = study_folder.tuner("logs", str(failed.trial))
    assert (logged.code, logged.out.splitlines()[0]) == (0, "this is raise")
    assert logged.out.endswith("ValueError: the learning rate is a colour\n")
    assert logged.err.endswith(f"tuner-files/small/trial-{failed.trial}/attempt-2.log\n")
    first = study_folder.tuner("logs", str(failed.trial), "--attempt", "1")
    assert first.err.endswith("attempt-1.log\n")


def test_commands(study_folder: StudyFolder) -> None:
    study_folder.write("train.py", COMMAND)
    trial = {"command": ["python", "train.py", "{how}"]}
    study_folder.study(**grid_of(list(OF_COMMANDS), trial))
    ended = study_folder.tune()
    assert (ended.code, ended.err) == (EXIT_BUDGET_REACHED, "")
    check(study_folder, OF_COMMANDS)


STALLS = """
import time

def train(trial):
    trial.report(0.5, 1)
    while True:
        time.sleep(60)
"""


def test_trial_that_does_nothing_any_more(study_folder: StudyFolder) -> None:
    study_folder.write("forecast.py", STALLS)
    trial = {"function": "forecast:train", "stall_timeout": "2s"}
    study_folder.study(trial=trial, devices="cpu:1", budget={"trials": 1})
    assert study_folder.tune().code == EXIT_STUDY_FAILED
    (attempt,) = study_folder.attempts()
    assert (attempt.outcome, attempt.cause) == ("timed_out", "stalled")
    assert attempt.detail.startswith("It reported nothing for 2 s, and neither its processes nor")


def test_command_whose_program_vanishes(study_folder: StudyFolder) -> None:
    study_folder.write("train.sh", '#!/bin/sh\necho \'{"value": 1}\'\nrm -- "$0"\n').chmod(0o755)
    study_folder.study(trial={"command": ["./train.sh"]}, devices="cpu:1", budget={"trials": 2})
    ended = study_folder.tune()
    assert (ended.code, ended.err) == (EXIT_BUDGET_REACHED, "")
    first, second = study_folder.attempts()
    assert first.outcome == "completed"
    assert (second.outcome, second.cause) == ("failed_to_start", "launch")
    assert second.detail == (
        "The command could not be started: [Errno 2] No such file or directory: "
        f"'{study_folder.path / 'train.sh'}'"
    )


def test_study_whose_every_trial_fails(study_folder: StudyFolder) -> None:
    study_folder.write("forecast.py", FUNCTIONS)
    study_folder.study(trial={"function": "forecast:fail"}, budget={"trials": 2})
    ended = study_folder.tune()
    assert (ended.code, ended.err) == (EXIT_STUDY_FAILED, "")
    assert ended.out.endswith(
        "budget reached: 2 trials: 0 completed, 0 pruned, 2 failed\n"
        "No trial has completed. See what one printed: tuner logs study.yaml 0\n"
    )
    assert "ValueError: always" in ended.out
    logged = study_folder.tuner("logs", "0", "study.yaml")
    assert logged.out.startswith("line before\n")

    best = study_folder.best("study.yaml")
    message = "No trial of study 'small' has completed yet.\n"
    assert (best.code, best.err) == (EXIT_BAD_INPUT, message)


def test_quick_trials_lose_nothing(study_folder: StudyFolder) -> None:
    # Each says all and is gone at once; whether that is heard was a matter of chance before.
    study_folder.write(
        "forecast.py",
        "def train(trial):\n"
        "    for step in range(3):\n"
        "        trial.report(trial.params['x'], step)\n"
        "    return trial.params['x']\n",
    )
    study_folder.study(budget={"trials": 200})
    ended = study_folder.tune()
    assert (ended.code, ended.err) == (EXIT_BUDGET_REACHED, "")
    assert study_folder.states() == ["COMPLETE"] * 200


def test_each_trial_does_what_modules_have_registered_for_the_end(
    study_folder: StudyFolder,
) -> None:
    study_folder.write(
        "forecast.py",
        "import atexit\n"
        "from pathlib import Path\n"
        "state = {}\n"
        "def write(suffix):\n"
        "    if 'number' in state:\n"
        "        Path(f\"end-{state['number']}{suffix}\").touch()\n"
        "atexit.register(write, suffix='.txt')\n"
        "def train(trial):\n"
        "    state['number'] = trial.number\n"
        "    if trial.number == 1:\n"
        "        raise ValueError\n"
        "    return trial.params['x']\n",
    )
    study_folder.study(budget={"trials": 2}, devices="cpu:1")
    ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert study_folder.states() == ["COMPLETE", "FAIL"]
    assert {"end-0.txt", "end-1.txt"} <= study_folder.files()


def test_many_reports_that_never_ask_for_the_verdict(study_folder: StudyFolder) -> None:
    study_folder.write(
        "forecast.py",
        "import time\n"
        "def train(trial):\n"
        "    for step in range(2000):\n"
        "        trial.report(step, step)\n"
        "    time.sleep(0.5)  # Not reading, while the verdicts come.\n"
        "    trial.report(0.0, 2000)\n"
        "    return trial.params['x']\n",
    )
    study_folder.study(budget={"trials": 2})
    ended = study_folder.tune()
    assert (ended.code, ended.err) == (EXIT_BUDGET_REACHED, "")
    assert study_folder.states() == ["COMPLETE"] * 2
    query = "select count(*) from trial_intermediate_values group by trial_id"
    assert study_folder.rows(query) == [(2001,), (2001,)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("logs", "0"), "Trial 0 of study 'small' has no log in {folder}/tuner-files/small.\n"),
        (
            ("best", "study.yaml"),
            "There is no database at sqlite:///{folder}/small.db yet. Run the study first.\n",
        ),
    ],
)
def test_asking_before_the_first_start(
    study_folder: StudyFolder, words: tuple[str, ...], message: str
) -> None:
    study_folder.study()
    ended = study_folder.tuner(*words)
    folder = str(study_folder.path)
    assert (ended.code, ended.err) == (EXIT_BAD_INPUT, message.format(folder=folder))
    assert study_folder.files() == {"forecast.py", "study.yaml"}
