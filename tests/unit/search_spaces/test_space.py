"""Sampling: values stay within bounds, conditions hold, constants are always there."""

from __future__ import annotations

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.search_spaces import Parameter, SearchSpace, identity, parse_space
from tuner.search_spaces.schema import parse_stored_space
from tuner.search_spaces.space import is_one_of

CONDITIONAL = {
    "epochs": 20,
    "sizes": {"value": [1, 2]},
    "optimizer": {"type": "categorical", "choices": ["sgd", "adamw", "none"]},
    "momentum": {"type": "float", "low": 0.0, "high": 0.9, "when": {"optimizer": "sgd"}},
    "nesterov": {
        "type": "categorical",
        "choices": [True, False],
        "when": {"optimizer": ["sgd", "adamw"], "epochs": 20},
    },
    "damping": {"type": "float", "low": 0.0, "high": 1.0, "when": {"nesterov": False}},
}


@pytest.fixture
def study() -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))


def fixed(**values: object) -> optuna.trial.FixedTrial:
    return optuna.trial.FixedTrial(values)


def test_suggest_with_condition_met_has_the_parameter() -> None:
    trial = fixed(optimizer="sgd", momentum=0.5, nesterov=True)
    values = parse_space(CONDITIONAL).suggest(trial)
    assert values == {
        "optimizer": "sgd",
        "momentum": 0.5,
        "nesterov": True,
        "epochs": 20,
        "sizes": [1, 2],
    }


def test_suggest_with_absent_parent_leaves_the_child_out() -> None:
    values = parse_space(CONDITIONAL).suggest(fixed(optimizer="none"))
    assert values == {"optimizer": "none", "epochs": 20, "sizes": [1, 2]}


def test_suggest_gives_constants_that_a_trial_may_change() -> None:
    space = parse_space(CONDITIONAL)
    space.suggest(fixed(optimizer="none"))["sizes"].append(3)
    assert space.constants["sizes"] == [1, 2]


def test_suggest_registers_the_distributions_with_optuna(study: optuna.Study) -> None:
    trial = study.ask()
    parse_space({"n": {"type": "int", "low": 2, "high": 64, "log": True}}).suggest(trial)
    assert trial.distributions == {"n": optuna.distributions.IntDistribution(2, 64, log=True)}


@pytest.mark.parametrize(
    ("value", "expected"), [(0, True), (4, True), (4.0, True), (5, False), (True, False)]
)
def test_can_be_follows_the_steps(value: object, expected: bool) -> None:
    (n,) = parse_space({"n": {"type": "int", "low": 0, "high": 8, "step": 4}}).parameters
    assert n.can_be(value) is expected


def test_is_one_of_keeps_true_and_1_apart() -> None:
    assert not is_one_of(True, [1])


numbers = st.integers(-1000, 1000)


@st.composite
def parameters(draw: st.DrawFn, names: list[str]) -> dict[str, object]:
    kind = draw(st.sampled_from(["float", "int", "categorical"]))
    if kind == "categorical":
        body = {"type": kind, "choices": draw(st.lists(numbers, min_size=1, unique=True))}
    else:
        is_log = draw(st.booleans())
        low = draw(st.integers(1, 1000) if is_log else numbers)
        body = {"type": kind, "low": low, "high": low + draw(st.integers(1, 50)), "log": is_log}
        if not is_log and draw(st.booleans()):
            body["step"] = 1
    if names and draw(st.booleans()):
        body["when"] = {draw(st.sampled_from(names)): draw(st.sampled_from(["a", ["a", "b"]]))}
    return body


@st.composite
def spaces(draw: st.DrawFn) -> SearchSpace:
    switches = {f"s{i}": {"type": "categorical", "choices": ["a", "b"]} for i in range(2)}
    others = {f"p{i}": draw(parameters(list(switches))) for i in range(draw(st.integers(0, 4)))}
    return parse_space({**switches, **others})


def is_within(parameter: Parameter, value: object) -> bool:
    distribution = parameter.distribution
    return distribution._contains(distribution.to_internal_repr(value))


@settings(max_examples=40, deadline=None)
@given(space=spaces(), seed=st.integers(0, 1000))
def test_suggest_keeps_bounds_and_conditions(space: SearchSpace, seed: int) -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    values = space.suggest(study.ask())
    for parameter in space.parameters:
        holds = all(values.get(name) in allowed for name, allowed in parameter.when.items())
        assert (parameter.name in values) == holds
        if holds:
            assert is_within(parameter, values[parameter.name])


@settings(max_examples=40, deadline=None)
@given(space=spaces())
def test_to_mapping_is_read_back_as_the_same_space(space: SearchSpace) -> None:
    assert parse_stored_space(space.to_mapping()) == space
    again = parse_space(space.to_file_mapping())
    assert again == space
    assert identity(again) == identity(space)
