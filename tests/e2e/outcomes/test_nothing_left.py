"""A training that had ended before its trial was ended: the trial completes when it is resumed."""

from __future__ import annotations

import signal

import optuna
import pytest
from optuna.trial import TrialState

from tests.e2e.outcomes.test_verdicts import SAVED, asha
from tests.e2e.study_folder import StudyFolder, wait_until
from tuner.errors import EXIT_BUDGET_REACHED, EXIT_INTERRUPTED

N_STEPS = 9

# Works on its result after the last step: an export, a plot, an upload.
FUNCTION = """
import os, time

def train(trial):
    state = trial.load_checkpoint()
    for step in range(state["step"] + 1 if state else 1, 10):
        with open("steps.txt", "a") as file:
            file.write(f"{trial.number} {step}\\n")
        trial.report(trial.params.x * step, step)
        trial.save_checkpoint({"step": step}, step)
        if trial.should_prune():
            return
    open(f"done-{trial.number}-{trial.attempt_number}", "w").close()
    while not os.path.exists("go"):
        time.sleep(0.05)
"""

COMMAND = """
import json, os, sys, time
from saved import load, save

x, folder, number = float(sys.argv[1]), sys.argv[2], sys.argv[3]
for step in range(load(folder) + 1, 10):
    with open("steps.txt", "a") as file:
        file.write(f"{number} {step}\\n")
    save(folder, step)
    print(json.dumps({"step": step, "value": x * step}), flush=True)
    time.sleep(0.4 if step in (1, 3, 9) else 0.02)
open(f"done-{number}-1", "w").close()
while not os.path.exists("go"):
    time.sleep(0.05)
"""


def a_study(folder: StudyFolder, program: str, **keys: object) -> None:
    folder.write("saved.py", SAVED)
    folder.write("forecast.py", FUNCTION)
    folder.write("prints.py", COMMAND)
    command = ["python", "prints.py", "{x}", "{checkpoint_dir}", "{trial_number}"]
    folder.study(
        trial={
            "stop_grace": "1s",
            **({"command": command} if program == "command" else {"function": "forecast:train"}),
        },
        objectives={"value": "maximize"},
        storage="sqlite:///small.db",
        **{"devices": "cpu:2", "budget": {"trials": 2}, "pruner": "none", **keys},
    )


def study_of(folder: StudyFolder) -> optuna.Study:
    return optuna.load_study(study_name=None, storage=f"sqlite:///{folder.path / 'small.db'}")


def check_values(study: optuna.Study) -> None:
    for trial in study.get_trials(states=(TrialState.COMPLETE,)):
        assert trial.value == trial.params["x"] * N_STEPS


def wait_for_both(folder: StudyFolder) -> None:
    done = [folder.path / f"done-{number}-1" for number in range(2)]
    wait_until(lambda: all(each.exists() for each in done), "both trainings have ended")
    last = "SELECT trial_id FROM trial_intermediate_values WHERE step = 9"
    wait_until(lambda: len(folder.rows(last)) == 2, "their last values are stored")


@pytest.mark.parametrize("program", ["function", "command"])
def test_ctrl_c_after_the_last_step(study_folder: StudyFolder, program: str) -> None:
    a_study(study_folder, program)
    running = study_folder.start()
    wait_for_both(study_folder)
    running.signal(signal.SIGINT)
    assert running.wait().code == EXIT_INTERRUPTED
    study_folder.write("go", "")
    ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    study = study_of(study_folder)
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 2
    check_values(study)
    assert len((study_folder.path / "steps.txt").read_text().split("\n")) == 2 * N_STEPS + 1


@pytest.mark.parametrize("program", ["function", "command"])
def test_killed_dispatcher_after_the_last_step(study_folder: StudyFolder, program: str) -> None:
    """Whether a report was lost with it is not known: the trials train once more."""
    a_study(study_folder, program)
    running = study_folder.start()
    wait_for_both(study_folder)
    running.signal(signal.SIGKILL)
    running.wait()
    study_folder.write("go", "")
    ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    study = study_of(study_folder)
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 2
    check_values(study)
    outcomes = sorted(str(each.outcome) for each in study_folder.attempts())
    assert outcomes == ["cancelled", "cancelled", "completed", "completed", "lost", "lost"]


@pytest.mark.parametrize("program", ["function", "command"])
def test_rung_at_the_last_step(study_folder: StudyFolder, program: str) -> None:
    n_trials = 9
    a_study(study_folder, program, pruner=asha("promote"), budget={"trials": n_trials})
    study_folder.write("go", "")
    ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    study = study_of(study_folder)
    completed = study.get_trials(states=(TrialState.COMPLETE,))
    assert completed
    check_values(study)
    assert {each.outcome for each in study_folder.attempts()} == {"paused", "completed"}
    best = max(study.trials, key=lambda trial: trial.params["x"])
    assert best.state is TrialState.COMPLETE
    steps = (study_folder.path / "steps.txt").read_text().splitlines()
    assert len(steps) == len(set(steps))
