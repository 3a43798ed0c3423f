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
