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
