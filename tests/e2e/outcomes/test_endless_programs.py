"""Programs that do not end by themselves, and which of their reports counts."""

from __future__ import annotations

import pytest

from tests.e2e.study_folder import StudyFolder
from tuner.errors import EXIT_BUDGET_REACHED, EXIT_STUDY_FAILED

# A reinforcement learning loop without an end.
ENDLESS = """
import itertools, json, time

def rewards():
    for step in itertools.count(1):
        yield step, {1: 0.2, 2: 0.9}.get(step, 0.5 + step / 100)

def train(trial):
    for step, reward in rewards():
        trial.report(reward, step)
        if trial.should_prune():
            return
        time.sleep(0.01)

if __name__ == "__main__":
    for step, reward in rewards():
        print(json.dumps({"step": step, "reward": reward}), flush=True)
        time.sleep(0.05)
"""
# One report, and no end.
STANDS = """
import sys, time
if sys.argv[1] == "0":
    print('{"step": 1, "reward": 0.25}', flush=True)
time.sleep(600)
"""
PROGRAMS = {
    "function": {"function": "endless:train"},
    "command": {"command": ["python", "endless.py"]},
}


def a_study(folder: StudyFolder, **trial: object) -> None:
    folder.write("endless.py", ENDLESS)
    folder.write("stands.py", STANDS)
    folder.study(trial=trial, objectives={"reward": "maximize"}, budget={"trials": 2})


def values(folder: StudyFolder) -> list[float]:
    rows = folder.rows(
        "select value from trial_values join trials using (trial_id) order by number"
    )
    return [value for (value,) in rows]


@pytest.mark.parametrize("program", sorted(PROGRAMS))
def test_trial_completes_at_its_last_step(study_folder: StudyFolder, program: str) -> None:
    a_study(study_folder, **PROGRAMS[program], max_steps=4)
    ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert study_folder.states() == ["COMPLETE"] * 2
    # A command may report once more before SIGTERM reaches it.
    assert all(0.54 <= value < 0.6 for value in values(study_folder))
    outcomes = [(one.number, one.outcome, one.cause) for one in study_folder.attempts()]
    assert outcomes == [(1, "completed", None)] * 2


@pytest.mark.parametrize("program", sorted(PROGRAMS))
def test_best_report_counts_if_asked_for(study_folder: StudyFolder, program: str) -> None:
    a_study(study_folder, **PROGRAMS[program], max_steps=4, value="best")
    ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert values(study_folder) == [0.9, 0.9]
    assert "best: reward 0.9" in ended.out.replace("=", " ")


def test_what_a_function_returns_counts_always(study_folder: StudyFolder) -> None:
    study_folder.write(
        "returns.py",
        "def train(trial):\n    trial.report(0.9, 1)\n    trial.report(0.1, 2)\n    return 0.5\n",
    )
    a_study(study_folder, function="returns:train", value="best")
    study_folder.tune()
    assert values(study_folder) == [0.5, 0.5]


def test_time_limit_completes_what_has_reported(study_folder: StudyFolder) -> None:
    a_study(
        study_folder,
        command=["python", "stands.py", "{trial_number}"],
        timeout="3s",
        on_timeout="complete",
    )
    ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert study_folder.states() == ["COMPLETE", "FAIL"]
    assert values(study_folder) == [0.25]
    assert [one.outcome for one in study_folder.attempts()] == ["completed", "timed_out"]


def test_study_in_which_nothing_completed_has_failed(study_folder: StudyFolder) -> None:
    study_folder.write(
        "gives_up.py", "import optuna\ndef train(trial):\n    raise optuna.TrialPruned\n"
    )
    a_study(study_folder, function="gives_up:train")
    ended = study_folder.tune()
    assert study_folder.states() == ["PRUNED"] * 2
    assert ended.code == EXIT_STUDY_FAILED, ended.text
