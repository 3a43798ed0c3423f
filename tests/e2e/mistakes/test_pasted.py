"""Commands that messages name can be pasted, whatever the files and the studies are called."""

from __future__ import annotations

import shlex

import pytest
import yaml

from tests.e2e.study_folder import StudyFolder
from tuner.errors import EXIT_BAD_INPUT, EXIT_BUDGET_REACHED

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


def test_command_that_a_shell_fills(folder: StudyFolder) -> None:
    folder.env["DATA_DIR_OF_TEST"] = "some data"
    folder.write("train.py", "import sys\nprint(sys.argv[1:3])\nprint({'value': 1}, sys.argv[3])\n")
    words = ["python", "train.py", "--data", "$DATA_DIR_OF_TEST", "--x={x}"]
    trial = {"command": words, "metrics": {"pattern": "'value': {value}"}}
    folder.study(file=FILE, trial=trial, budget={"trials": 1})
    refused = folder.tuner("validate", FILE)
    assert refused.code == EXIT_BAD_INPUT
    line = refused.err.partition("Let a shell read it: ")[2]
    folder.study(file=FILE, trial=trial | yaml.safe_load(line), budget={"trials": 1})
    assert folder.tune(file=FILE).code == EXIT_BUDGET_REACHED
    log = folder.tuner("logs", FILE, "0").out
    assert "['--data', 'some data']" in log
    assert "--x=0." in log
