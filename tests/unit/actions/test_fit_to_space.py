"""Whether given configurations fit the space, and what is wrong with them."""

from __future__ import annotations

import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from tuner.actions.config_input import Given
from tuner.actions.fit_to_space import fit_all, fitted, fitted_freely
from tuner.errors import ConfigError
from tuner.search_spaces import parse_space
from tuner.search_spaces.fit import Misfit, Misfits, convert

SPACE = parse_space(
    {
        "lr": {"type": "float", "low": 1e-4, "high": 0.1, "log": True},
        "width": {"type": "int", "low": 16, "high": 64, "step": 16},
        "optimizer": {"type": "categorical", "choices": ["sgd", "adamw", None, True]},
        "momentum": {"type": "float", "low": 0.0, "high": 1.0, "when": {"optimizer": "sgd"}},
        "epochs": 20,
        "layers": {"value": [64, 32]},
    }
)


def given(params: dict[str, object], *, is_text: bool = False) -> Given:
    return Given(place="here", params=params, is_text=is_text)


def mistakes(params: dict[str, object], *, is_text: bool = False) -> list[str]:
    with pytest.raises(Misfits) as caught:
        fitted(given(params, is_text=is_text), SPACE)
    return list(caught.value.mistakes)


def test_values_get_the_kinds_of_the_space() -> None:
    values = fitted(given({"lr": 0.1, "width": 32.0, "optimizer": "sgd", "momentum": 1}), SPACE)
    assert values == {"lr": 0.1, "width": 32, "optimizer": "sgd", "momentum": 1.0}
    assert (type(values["width"]), type(values["momentum"])) == (int, float)


def test_text_is_read_as_the_space_has_it() -> None:
    texts: dict[str, object] = {"lr": "1e-3", "width": "48", "optimizer": "null", "epochs": "20"}
    assert fitted(given(texts, is_text=True), SPACE) == {
        "lr": 0.001,
        "width": 48,
        "optimizer": None,
    }
    assert fitted(given({"optimizer": "true"}, is_text=True), SPACE) == {"optimizer": True}


def test_constants_may_be_given_and_are_left_out() -> None:
    assert fitted(given({"lr": 0.01, "epochs": 20, "layers": [64, 32]}), SPACE) == {"lr": 0.01}


@pytest.mark.parametrize(
    ("params", "mistake"),
    [
        ({"lr": 7}, "lr is 7, but goes from 0.0001 to 0.1."),
        ({"lr": "0.01"}, "lr is '0.01', but must be a number."),
        ({"lr": True}, "lr is True, but must be a number."),
        ({"lr": float("nan")}, "lr is nan, but must be a number."),
        ({"width": 20}, "width is 20, but goes from 16 in steps of 16."),
        ({"width": 16.5}, "width is 16.5, but must be a whole number."),
        (
            {"optimizer": "adam"},
            "optimizer is 'adam', but must be one of sgd, adamw, null, true. Did you mean 'adamw'?",
        ),
        ({"optimizer": 1}, "optimizer is 1, but must be one of sgd, adamw, null, true."),
        ({"rate": 1}, "rate is no parameter of this study. There are"),
        ({"epochs": 30}, "epochs is 30, but is the constant 20 in this study."),
        (
            {"momentum": 0.5},
            "momentum exists only where optimizer is sgd. Give optimizer too.",
        ),
        (
            {"optimizer": "adamw", "momentum": 0.5},
            "momentum exists only where optimizer is sgd, but it is adamw.",
        ),
        ({}, "gives no parameter. There are lr, width, optimizer, momentum."),
        ({"epochs": 20}, "gives no parameter."),
    ],
    ids=str,
)
def test_mistake_is_named(params: dict[str, object], mistake: str) -> None:
    (found,) = mistakes(params)
    assert found.startswith(mistake)


def test_all_mistakes_are_named_with_their_places() -> None:
    wrong = [
        Given(place="a.csv line 2", params={"lr": 7, "width": 1}),
        Given(place="a.csv line 3", params={"lr": 0.01}),
        Given(place="a.csv line 4", params={"optimiser": "sgd"}),
    ]
    with pytest.raises(ConfigError) as caught:
        fit_all(wrong, lambda each: fitted(each, SPACE))
    assert str(caught.value).splitlines() == [
        "a.csv line 2: lr is 7, but goes from 0.0001 to 0.1.",
        "a.csv line 2: width is 1, but goes from 16 to 64.",
        "a.csv line 4: optimiser is no parameter of this study. Did you mean 'optimizer'?",
    ]


def test_long_lists_of_mistakes_are_cut() -> None:
    with pytest.raises(ConfigError) as caught:
        fit_all([given({"lr": 7})] * 30, lambda each: fitted(each, SPACE))
    *_, last = lines = str(caught.value).splitlines()
    assert (len(lines), last) == (21, "... and 10 more mistakes.")


def test_objectives_own_parameters_are_taken_as_they_are() -> None:
    known = {"lr": FloatDistribution(0, 1)}
    params: dict[str, object] = {"lr": "0.5", "depth": "3", "name": "a: b"}
    assert fitted_freely(given(params, is_text=True), known) == {
        "lr": 0.5,
        "depth": 3,
        "name": "a: b",
    }
    with pytest.raises(Misfits) as caught:
        fitted_freely(given({"lr": 2, "depth": [3]}), known)
    assert caught.value.mistakes == (
        "lr is 2, but goes from 0 to 1.",
        "depth is [3], but must be one value.",
    )
    with pytest.raises(Misfits, match="gives no parameter"):
        fitted_freely(given({}), known)


def test_true_is_no_one() -> None:
    assert convert(1, CategoricalDistribution([True, 1.0])) == 1.0
    with pytest.raises(Misfit):
        convert(True, IntDistribution(0, 1))
