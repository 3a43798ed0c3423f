"""Commands that messages name can be pasted, whatever the files and the studies are called."""

from __future__ import annotations

import shlex

import pytest

from tests.e2e.study_folder import StudyFolder
from tuner.errors import EXIT_BUDGET_REACHED

NAME = "it's $HOME & more"
FILE = "my study's $1.yaml"
TRAIN = "def train(trial):\n    return trial.params['x']\n"
PYTHON = ["python", "-m", "tuner.best"]


@pytest.fixture
def folder(study_folder: StudyFolder) -> StudyFolder:
    study_folder.write("forecast.py", TRAIN)
    return study_folder


def test_best_is_shown_again_by_the_line_that_says_so(folder: StudyFolder) -> None:
    folder.study(file=FILE)
    ended = folder.tune("--study", NAME, file=FILE)
    assert ended.code == EXIT_BUDGET_REACHED
    (line,) = [line for line in ended.out.splitlines() if line.startswith("again: ")]
    words = shlex.split(line.removeprefix("again: "))
    assert words == [*PYTHON, FILE, "--study", NAME]
    assert folder.best(*words[3:]).code == 0


def test_interrupted_command_is_told_as_it_was_typed(folder: StudyFolder) -> None:
    folder.study(file=FILE, trial={"function": "forecast:raises"})
    folder.write("forecast.py", "def raises(trial):\n    raise ValueError\n")
    ended = folder.tune("--study", NAME, file=FILE)
    (line,) = [line for line in ended.out.splitlines() if "tuner logs" in line]
    words = shlex.split(line.partition("tuner ")[2])
    assert words == ["logs", FILE, "0", "--study", NAME]
    assert "ValueError" in folder.tuner(*words).out


def test_study_file_that_was_written(folder: StudyFolder) -> None:
    ended = folder.tuner("init", FILE)
    check, _, start = ended.out.partition("then: ")[2].strip().partition("; ")
    assert shlex.split(check) == ["tuner", "validate", FILE]
    assert shlex.split(start) == ["python", "-m", "tuner.run", FILE]


def test_copied_study(folder: StudyFolder) -> None:
    folder.study(file=FILE)
    assert folder.tune(file=FILE).code == EXIT_BUDGET_REACHED
    ended = folder.tuner("copy", FILE, "--to", NAME, "--space", FILE)
    (line,) = [line for line in ended.out.splitlines() if line.startswith("To continue: ")]
    assert shlex.split(line)[-3:] == [FILE, "--study", NAME]
