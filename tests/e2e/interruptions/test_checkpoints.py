"""States that trials save: what the study keeps of them, and the best one again."""

from __future__ import annotations

import tuner
from tests.e2e.study_folder import StudyFolder
from tuner.errors import EXIT_BUDGET_REACHED

TRAIN = """
import optuna, torch

def train(trial):
    value = [0.2, 0.9, 0.4, 0.7, 0.1][trial.number]
    for step in range(1, 4):
        state = {"weights": torch.full((1000,), value), "step": step}
        trial.save_checkpoint(state, step, wait=False)
    if trial.number == 3:
        raise optuna.TrialPruned
    if trial.number == 4:
        raise ValueError("no memory of this one")
    return value
"""


def test_best_few_are_kept_and_the_best_comes_back(study_folder: StudyFolder) -> None:
    study_folder.write("forecast.py", TRAIN)
    study_folder.study(
        storage="sqlite:///small.db",
        objectives={"value": "maximize"},
        devices="cpu:1",
        budget={"trials": 5},
        checkpoints={"keep": "best 2", "newest": 1},
    )
    assert study_folder.tune().code == EXIT_BUDGET_REACHED
    kept = study_folder.path.glob("tuner-files/*/trial-*/checkpoints/*")
    assert {(path.parts[-3], path.name) for path in kept} == {
        ("trial-1", "step-3.pt"),
        ("trial-2", "step-3.pt"),
    }
    best = tuner.load_best(f"sqlite:///{study_folder.path / 'small.db'}")
    state = best.load_checkpoint()
    assert state is not None
    assert state["step"] == 3
    assert {round(each, 5) for each in state["weights"].tolist()} == {0.9}


SHELL = """
import sys
from pathlib import Path

folder = Path(sys.argv[1])
(folder / "best.txt").write_text("saved by a program that makes no folder")
print('{"value": 0.5}')
"""


def test_folder_of_a_command_is_there_when_it_starts(study_folder: StudyFolder) -> None:
    study_folder.write("save.py", SHELL)
    study_folder.study(
        trial={"command": ["python", "save.py", "{checkpoint_dir}"]},
        devices="cpu:1",
        budget={"trials": 2},
    )
    assert study_folder.tune().code == EXIT_BUDGET_REACHED
    assert len(list(study_folder.path.glob("tuner-files/small/*/checkpoints/best.txt"))) == 2


RETRIED = """
def train(trial):
    state = trial.load_checkpoint()
    if trial.attempt_number == 1:
        for step in (1, 2):
            trial.save_checkpoint({"weights": [0.5] * 2000, "step": step}, step)
        raise ValueError("again")
    return state["step"]
"""


def test_damaged_state_is_named_in_the_log_and_on_the_screen(study_folder: StudyFolder) -> None:
    study_folder.write("forecast.py", RETRIED)
    study_folder.write("damage.py", DAMAGE)
    study_folder.study(
        storage="sqlite:///small.db",
        trial={"function": "damage:train", "retries": 1},
        devices="cpu:1",
        budget={"trials": 1},
    )
    ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED
    folder = study_folder.path / "tuner-files" / "small" / "trial-0"
    damaged = folder / "checkpoints" / "step-2.pt"
    assert f"Checkpoint {damaged} is damaged" in (folder / "attempt-2.log").read_text()
    assert f"its newest checkpoint is damaged: {damaged}" in ended.text
    assert study_folder.rows("select value from trial_values") == [(1.0,)]
    best = tuner.load_best(f"sqlite:///{study_folder.path / 'small.db'}")
    state = best.load_checkpoint()
    assert state is not None
    assert state["step"] == 1


SAVED_ONCE = """
def train(trial):
    state = trial.load_checkpoint()
    if trial.attempt_number == 1:
        trial.save_checkpoint({"weights": [0.5] * 2000, "step": 2}, 2)
        raise ValueError("again")
    for step in (1, 2, 3):
        trial.report(0.1 * step, step)
        assert not trial.should_prune()
    return 7.0 if state is None else 0.0
"""


def test_trial_whose_only_state_is_damaged_starts_again(study_folder: StudyFolder) -> None:
    study_folder.write("forecast.py", SAVED_ONCE)
    study_folder.write("damage.py", DAMAGE)
    study_folder.study(
        trial={"function": "damage:train", "retries": 1},
        devices="cpu:1",
        budget={"trials": 1},
    )
    ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert "it starts from the beginning, because its newest checkpoint is damaged" in ended.text
    assert study_folder.rows("select value from trial_values") == [(7.0,)]


#: A disk that loses a sector between two attempts.
DAMAGE = """
import forecast

def train(trial):
    if trial.attempt_number == 2:
        path = trial.checkpoint_dir / "step-2.pt"
        content = path.read_bytes()
        path.write_bytes(content[:1024] + bytes(512) + content[1536:])
    return forecast.train(trial)
"""
