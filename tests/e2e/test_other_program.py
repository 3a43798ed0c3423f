"""Two study files of one name and one database, with different programs."""

from __future__ import annotations

from tests.e2e.study_folder import StudyFolder
from tuner.errors import EXIT_BUDGET_REACHED

NOTE = "Note: the last start of this study, in "


def test_the_second_program_is_told_of_the_first(study_folder: StudyFolder) -> None:
    study_folder.study(budget={"trials": 1})
    assert NOTE not in study_folder.tune().out
    assert NOTE not in study_folder.tune("--trials", "2").out
    study_folder.write("other.py", "def train(trial):\n    return trial.params['x']\n")
    study_folder.study(trial={"function": "other:train"}, budget={"trials": 3})
    ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert f"{NOTE}{study_folder.path} on " in ended.out
    assert "ran forecast:train; this one, in " in ended.out
    assert "runs other:train" in ended.out
