"""Command lines of a study's program, and words of Hydra."""

from __future__ import annotations

import ast
import shlex

import pytest

from tuner.queries.results.command_line import Program, hydra_words, read_program
from tuner.search_spaces import ParamValue

PLACES: dict[str, ParamValue] = {"seed": 3}


def test_a_command_is_filled_and_quoted() -> None:
    program = read_program("trial: {command: [python, train.py, '--lr={lr}', '--name={name}']}")
    assert program is not None
    line = program.line({"lr": 0.01, "name": "a b"}, PLACES)
    assert line == "python train.py --lr=0.01 '--name=a b'"


def test_a_function_is_called() -> None:
    line = Program(function="train:main").line({"lr": 0.1}, PLACES)
    assert line is not None
    assert shlex.split(line)[:2] == ["python", "-c"]
    assert (
        shlex.split(line)[2] == 'import tuner, train; print(train.main(tuner.current({"lr": 0.1})))'
    )


def test_parameters_of_a_function_arrive() -> None:
    """Whatever characters they have, in the shell and in Python."""
    params: dict[str, ParamValue] = {
        "quotes": 'it\'s "x" $HOME `id` \\n',
        "lines": "a\nb\t\x00",
        "other": "é 😀",
        "none": None,
        "yes": True,
        "layers": [16, [0.5, "a'b"]],
    }
    line = Program(function="json:dumps").line(params, PLACES)
    assert line is not None
    code = shlex.split(line)[2]
    given = code.removeprefix("import tuner, json; print(json.dumps(tuner.current(")
    assert ast.literal_eval(given.removesuffix(")))")) == params


@pytest.mark.parametrize("text", ["study: s", "trial: 3", "trial: {}", "- 1", "a: ["])
def test_no_program(text: str) -> None:
    assert read_program(text) is None


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (0.01, "x=0.01"),
        (True, "x=true"),
        (None, "x=null"),
        ([1, 2], "x=[1, 2]"),
        ("sgd", "x=sgd"),
        ("/data/a.npz", "x=/data/a.npz"),
        ("true", 'x="true"'),
        ("1e-3", "x=1e-3"),
        ("12", 'x="12"'),
        ("a b", 'x="a b"'),
        ("a,b", 'x="a,b"'),
        ("${y}", 'x="${y}"'),
    ],
)
def test_words_of_hydra(value: ParamValue, word: str) -> None:
    assert shlex.split(hydra_words({"x": value})) == [word]
