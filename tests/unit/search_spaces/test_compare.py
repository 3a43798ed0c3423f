"""A stored space against the one in the file."""

from __future__ import annotations

import pytest
from optuna.distributions import (
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from tuner.search_spaces import (
    DefineByRunSpace,
    differences,
    from_json,
    identity,
    parse_space,
    to_json,
)
from tuner.search_spaces.compare import difference_in_code

LR = {"type": "float", "low": 0.001, "high": 0.1}
OLD = {
    "lr": LR,
    "width": {"type": "int", "low": 1, "high": 8},
    "optimizer": {"type": "categorical", "choices": ["sgd", "adamw"]},
    "epochs": 20,
}


@pytest.mark.parametrize(
    ("change", "sentences"),
    [
        pytest.param({}, [], id="same"),
        pytest.param(
            {"lr": {**LR, "high": 0.2}}, ["lr: high was 0.1, is now 0.2"], id="other-bound"
        ),
        pytest.param({"lr": {**LR, "log": True}}, ["lr: log is new, true"], id="log"),
        pytest.param({"lr": 0.1}, ["lr: was {type: float, low: 0.001, high: 0.1}, is now 0.1"]),
        pytest.param({"momentum": LR}, ["momentum is new"], id="new"),
        pytest.param({"width": None}, ["width is gone"], id="gone"),
        pytest.param({"epochs": 30}, ["epochs: was 20, is now 30"], id="constant"),
        pytest.param(
            {"optimizer": {"type": "categorical", "choices": ["adamw", "sgd"]}},
            ["optimizer: choices was [sgd, adamw], is now [adamw, sgd]"],
            id="choices",
        ),
        pytest.param(
            {"width": {"type": "int", "low": 1, "high": 8, "when": {"optimizer": "sgd"}}},
            ["width: when is new, {optimizer: [sgd]}"],
            id="when",
        ),
    ],
)
def test_differences_are_sentences(change: dict[str, object], sentences: list[str]) -> None:
    new = {**OLD, **change}
    new = {"optimizer": new.pop("optimizer"), **{k: v for k, v in new.items() if v is not None}}
    assert differences(parse_space(OLD), parse_space(new)) == sentences


@pytest.mark.parametrize(
    "space",
    [
        pytest.param(parse_space(OLD), id="declared"),
        pytest.param(DefineByRunSpace(module="a.b", function="c"), id="function"),
        pytest.param(None, id="none"),
    ],
)
def test_json_is_read_back_as_the_same_space(space: object) -> None:
    assert from_json(to_json(space)) == space


def test_differences_between_kinds_name_both() -> None:
    old, new = parse_space({"lr": LR}), DefineByRunSpace(module="a", function="b")
    assert differences(old, new) == [
        "the space was declared in the study file (lr), is now the function a:b"
    ]
    assert differences(new, None) == [
        "the space was the function a:b, is now drawn by the objective itself"
    ]
    assert differences(None, None) == []


def test_identity_ignores_the_order_of_parameters_only() -> None:
    backwards = dict(reversed(OLD.items()))
    assert identity(parse_space(OLD)) == identity(parse_space(backwards))
    assert identity(parse_space(OLD)) != identity(parse_space({**OLD, "epochs": 21}))


def test_equal_ranges_in_code_are_no_difference() -> None:
    space = parse_space(OLD)
    same = {
        "lr": FloatDistribution(0.001, 0.1),
        "width": IntDistribution(1, 8),
        "optimizer": CategoricalDistribution(["adamw", "sgd"]),
        "unknown": FloatDistribution(0, 1),
    }
    assert [difference_in_code(space, *each) for each in same.items()] == [None] * len(same)
    assert difference_in_code(None, "lr", FloatDistribution(0, 1)) is None


def test_both_ranges_are_given_as_a_study_file_has_them() -> None:
    space = parse_space({**OLD, "momentum": {**LR, "when": {"optimizer": "sgd"}}})
    log = FloatDistribution(1e-5, 0.1, log=True)
    in_code = "{type: float, low: 1.0e-05, high: 0.1, log: true}"
    declared = "{type: float, low: 0.001, high: 0.1}"
    assert difference_in_code(space, "lr", log) == (declared, in_code)
    assert difference_in_code(space, "momentum", log) == (declared, in_code)
    epochs = IntDistribution(1, 50)
    assert difference_in_code(space, "epochs", epochs) == ("20", "{type: int, low: 1, high: 50}")
