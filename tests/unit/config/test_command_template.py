"""`{name}` places: which there are, and what fills them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.config.notation.command_template import TemplateError, places, render_argv, render_env

BUILTINS = {"trial_number": 3, "seed": 5, "attempt_number": 1, "checkpoint_dir": "/c"}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("--lr={lr}", ("lr",)),
        ("{a}-{b}", ("a", "b")),
        ("{{a}}", ()),
        ("{{{a}}}", ("a",)),
        ("", ()),
    ],
)
def test_places_are_found(text: str, names: tuple[str, ...]) -> None:
    assert places(text) == names


@pytest.mark.parametrize("text", ["{", "}", "{a", "a}", "{{}", "{a{b}"])
def test_lone_brace_is_refused(text: str) -> None:
    with pytest.raises(TemplateError, match="has a lone"):
        places(text)


@pytest.mark.parametrize(
    ("element", "filled"),
    [
        ("--lr={lr}", "--lr=1e-05"),
        ("{flag}", "true"),
        ("{sizes}", "[1, 2]"),
        ("{name}", "a b"),
        ("{nothing}", "null"),
        ("{trial_number}/{seed}", "3/5"),
        ('{{"lr": {lr}}}', '{"lr": 1e-05}'),
    ],
)
def test_argv_is_filled_with_values(element: str, filled: str) -> None:
    params = {"lr": 1e-5, "flag": True, "sizes": [1, 2], "name": "a b", "nothing": None}
    assert render_argv(["train", element], params, BUILTINS) == ["train", filled]


def test_parameters_win_over_builtins() -> None:
    assert render_argv(["{seed}"], {"seed": 9}, BUILTINS) == ["9"]


def test_place_alone_is_left_out_where_its_value_is_empty() -> None:
    argv = ["train", "{amp}", "--name={amp}", ""]
    assert render_argv(argv, {"amp": "--amp"}, {}) == ["train", "--amp", "--name=--amp", ""]
    assert render_argv(argv, {"amp": ""}, {}) == ["train", "--name=", ""]


def test_absent_parameter_takes_its_element_away() -> None:
    argv = ["train", "--momentum={momentum}", "--lr={lr}"]
    assert render_argv(argv, {"lr": 1}, BUILTINS) == ["train", "--lr=1"]


def test_absent_parameter_takes_its_variable_away() -> None:
    env = {"M": "{momentum}", "DIR": "{checkpoint_dir}/x", "N": "2"}
    assert render_env(env, {}, BUILTINS) == {"DIR": "/c/x", "N": "2"}


@given(st.text(alphabet="a{}"))
def test_doubled_braces_are_text(text: str) -> None:
    doubled = text.replace("{", "{{").replace("}", "}}")
    assert render_argv([doubled], {}, {}) == [text]
