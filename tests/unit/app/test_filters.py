"""Filters that people type, and lines that run a trial alone."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from tests.unit.app.columns import stored_attempt
from tuner.app.data.trials.filters import rows_where
from tuner.app.data.trials.run_alone import command_alone
from tuner.app.data.trials.table import Cell
from tuner.errors import ConfigError

TABLE: dict[str, list[Cell]] = {
    "trial": [0, 1, 2],
    "lr": [0.1, 0.01, None],
    "optimizer": ["sgd", "adamw", "sgd"],
    "state": ["out of memory", "this, or (that)", "pruned"],
    "duration (s)": [1.5, 9, None],
    "order": ["a", "b", "c"],
}


@pytest.mark.parametrize(
    ("text", "passed"),
    [
        ("", [True, True, True]),
        ("lr < 0.05", [False, True, False]),
        ("lr >= 0.01 and optimizer = SGD", [True, False, False]),
        ("optimizer != 'sgd'", [False, True, False]),
        ("Trial > 0, optimizer == sgd", [False, False, True]),
        ("lr < 0.05 or trial == 0", [True, True, False]),
        ("trial == 2 or lr > 0.05 and optimizer == sgd", [True, False, True]),
        ("(trial == 2 or lr > 0.05) and optimizer == adamw", [False, False, False]),
        ("trial in (0, 2)", [True, False, True]),
        ("trial not in (0,2)", [False, True, False]),
        ("optimizer in ('sgd', \"other\")", [True, False, True]),
        ("lr not in (0.1)", [False, True, False]),
        ("state == out of memory", [True, False, False]),
        ("state == 'this, or (that)' and trial < 9", [False, True, False]),
        ("duration (s) > 5", [False, True, False]),
        ("'duration (s)' <= 5 OR Order = b", [True, True, False]),
        ("order in (a)", [True, False, False]),
        ("lr<0.05", [False, True, False]),
        ("lr > -inf", [True, True, False]),
    ],
)
def test_rows_that_pass(text: str, passed: list[bool]) -> None:
    assert rows_where(text, TABLE, 3).tolist() == passed


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lr", "COLUMN SIGN VALUE"),
        ("width < 3", "no column 'width'. There are: trial, lr"),
        ("'width' < 3", "no column 'width'. There are: trial, lr"),
        ("lr < abc", "compares 'lr', which is a number, with 'abc'"),
        ("trial in (1, x)", "compares 'trial', which is a number, with 'x'"),
        ("lr <", "can't be read at 'nothing more'"),
        ("lr < 1 trial > 2", "which is a number, with '1 trial > 2'"),
        ("(lr < 1", "lacks a \\) before 'its end'"),
        ("lr < 1)", "can't be read at '\\)'"),
        ("trial in ()", "can't be read at '\\)'"),
        ("and", "can't be read at 'and'"),
        ("lr < 1 or", "can't be read at 'nothing more'"),
        ("(" * 200 + "lr < 1", "more than 50 parentheses"),
    ],
)
def test_what_is_no_filter_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        rows_where(text, TABLE, 3)


def test_a_command_alone_has_the_parameters_in_its_words_and_its_environment() -> None:
    file = 'trial: {command: [python, train.py, "--lr={lr}", "--m={momentum}"]}'
    line = command_alone(file, "/a b", 3, {"lr": 0.01}, stored_attempt(seed=7))
    assert line is not None
    assert line.splitlines()[0] == "cd '/a b' && \\"
    assert {"TUNER_PARAM_LR=0.01 \\", "TUNER_SEED=7 \\"} <= set(line.splitlines())
    assert line.splitlines()[-1] == "python train.py --lr=0.01"


def test_a_command_alone_runs_in_a_shell(tmp_path: Path) -> None:
    folder = tmp_path / "it's here"
    folder.mkdir()
    (folder / "train.sh").write_text('echo "$1 $TUNER_PARAM_NAME $TUNER_SEED"; pwd')
    file = 'trial: {command: [sh, train.sh, "{name}"]}'
    line = command_alone(file, str(folder), 3, {"name": "a $HOME 'b'"}, stored_attempt(seed=7))
    assert line is not None
    ran = subprocess.run(["sh"], input=line, text=True, capture_output=True, check=True)
    assert ran.stdout.splitlines() == ["a $HOME 'b' a $HOME 'b' 7", str(folder)]


def test_a_function_alone_is_called_with_a_trial_that_has_the_parameters() -> None:
    line = command_alone("trial: {function: a.b:train}", "/a", 3, {"lr": 0.01}, stored_attempt())
    assert line is not None
    code = shlex.split(line)[-1]
    assert code == 'import tuner, a.b; print(a.b.train(tuner.current({"lr": 0.01})))'


@pytest.mark.parametrize("file", ["", "[", "trial: 3", "trial: {}", "trial: {command: ['{']}"])
def test_no_line_where_the_program_is_not_known(file: str) -> None:
    assert command_alone(file, "/a", 3, {}, stored_attempt()) is None
