"""A study whose pruner comes from another package, by an entry point alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import toy_plugin
from tests.e2e.study_folder import REPOSITORY, StudyFolder
from tuner.errors import EXIT_BUDGET_REACHED

TRAIN = """
def train(trial):
    for step in range(1, 6):
        trial.report(float(step), step)
        if trial.should_prune():
            return
    return trial.params["x"]
"""


@pytest.fixture
def plugin_folder(study_folder: StudyFolder, tmp_path: Path) -> StudyFolder:
    """A study folder of a user who has installed the toy package."""
    toy_plugin.install(tmp_path / "site")
    study_folder.env["PYTHONPATH"] = f"{REPOSITORY}:{tmp_path / 'site'}"
    study_folder.write("forecast.py", TRAIN)
    return study_folder


def test_registered_pruner_decides(plugin_folder: StudyFolder) -> None:
    plugin_folder.study(
        storage="sqlite:///small.db", pruner={"name": "toy", "first_step": 2}, devices="cpu:1"
    )
    ended = plugin_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert plugin_folder.states() == ["COMPLETE", "PRUNED", "COMPLETE", "PRUNED"]


def test_wrong_name_is_answered_with_registered_ones(plugin_folder: StudyFolder) -> None:
    plugin_folder.study(pruner="toyy")
    ended = plugin_folder.tune("--dry-run")
    assert "toy_scheduler" in ended.err
    assert "Did you mean 'toy'?" in ended.err
