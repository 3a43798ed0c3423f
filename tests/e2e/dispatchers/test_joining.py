"""A start imports nothing that only an older database needs."""

from __future__ import annotations

from tests.e2e.study_folder import StudyFolder
from tuner.errors import EXIT_BUDGET_REACHED


def test_no_start_imports_alembic(study_folder: StudyFolder) -> None:
    study_folder.write("forecast.py", "def train(trial):\n    return trial.params['x']\n")
    study_folder.study(budget={"trials": 1})
    imported = []
    for n_trials in ("1", "2"):
        ended = study_folder.python(
            "-X", "importtime", "-m", "tuner.run", "study.yaml", "--trials", n_trials
        )
        assert ended.code == EXIT_BUDGET_REACHED, ended.err
        lines = [line for line in ended.err.splitlines() if line.startswith("import time:")]
        imported.append({line.rpartition("|")[2].strip() for line in lines})
    assert "sqlalchemy" in imported[1]
    # Optuna imports it in a way that shows its parts alone.
    assert ["alembic.util" in names for names in imported] == [False, False]
    assert study_folder.states() == ["COMPLETE"] * 2


def test_a_trial_with_several_threads_does_not_wait_for_those_of_the_fork_server(
    study_folder: StudyFolder,
) -> None:
    """GNU's OpenMP waits for ever for threads that were started before a fork."""
    study_folder.study(
        trial={"function": "tuner.trials.digits_mlp:train"},
        objectives={"accuracy": "maximize"},
        search_space={
            "lr": {"type": "float", "low": 1e-3, "high": 1e-2},
            "width": 115,
            "depth": 3,
            "dropout": 0.2,
            "optimizer": "adamw",
            "batch_size": 128,
            "epochs": 2,
        },
        budget={"trials": 1},
        devices="cpu:1",
    )
    ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert study_folder.states() == ["COMPLETE"]
