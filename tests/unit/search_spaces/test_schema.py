"""What a `search_space` may hold, and what is said about each mistake in it."""

from __future__ import annotations

import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from tuner.search_spaces import SpaceError, parse_space
from tuner.search_spaces.strict_yaml import read_yaml

OPTIMIZER = "optimizer: {type: categorical, choices: [sgd, adamw]}\n"


def parse(text: str):
    return parse_space(read_yaml(text))


PARAMETERS = [
    pytest.param(
        "{type: float, low: 1.0e-4, high: 1, log: true}",
        FloatDistribution(1e-4, 1.0, log=True),
        id="float-log",
    ),
    pytest.param(
        "{type: float, low: 0, high: 0.5, step: 0.1}",
        FloatDistribution(0.0, 0.5, step=0.1),
        id="float-step",
    ),
    pytest.param("{type: float, low: 1e-4, high: 1}", FloatDistribution(1e-4, 1.0), id="1e-4"),
    pytest.param(
        "{type: float, low: '1e-4', high: '1'}", FloatDistribution(1e-4, 1.0), id="quoted"
    ),
    pytest.param("{type: int, low: 1, high: 1e3}", IntDistribution(1, 1000), id="int-1e3"),
    pytest.param(
        "{type: int, low: 16, high: 256, log: true}",
        IntDistribution(16, 256, log=True),
        id="int-log",
    ),
    pytest.param(
        "{type: int, low: 0, high: 8, step: 4}", IntDistribution(0, 8, step=4), id="int-step"
    ),
    pytest.param(
        "{type: categorical, choices: [sgd, 3, 0.5, true, null]}",
        CategoricalDistribution(["sgd", 3, 0.5, True, None]),
        id="categorical",
    ),
]


@pytest.mark.parametrize(("text", "distribution"), PARAMETERS)
def test_parameter_becomes_distribution(text: str, distribution: object) -> None:
    (parameter,) = parse(f"x: {text}").parameters
    assert parameter.distribution == distribution


def test_parameters_keep_the_order_of_the_file() -> None:
    space = parse("b: {type: int, low: 0, high: 1}\nc: 3\na: {type: int, low: 0, high: 1}\n")
    assert [each.name for each in space.parameters] == ["b", "a"]


def test_all_but_parameters_are_constants() -> None:
    space = parse(
        "epochs: 20\nname: '1e-4'\nsizes: {value: [1, 2]}\n"
        "extra: {value: {a: {b: null}}}\nflag: true\n"
    )
    assert space.constants == {
        "epochs": 20,
        "name": "1e-4",
        "sizes": [1, 2],
        "extra": {"a": {"b": None}},
        "flag": True,
    }


MISTAKES = [
    pytest.param(
        "lr: {type: float, low: 1, high: 0.1}",
        "lr.low is 1.0, but must be below high, which is 0.1. Swap the two.",
        id="low-above-high",
    ),
    pytest.param(
        "lr: {type: int, low: 3, high: 3}",
        "lr has low equal to high (3). Use a constant instead: lr: 3",
        id="low-equals-high",
    ),
    pytest.param(
        "lr: {type: float, low: 0, high: 1, log: true}",
        "lr.low is 0.0, but must be above 0 with log: true. Use for example 1.0e-5.",
        id="log-from-0",
    ),
    pytest.param(
        "n: {type: int, low: -1, high: 8, log: true}",
        "n.low is -1, but must be above 0 with log: true. Use for example 1.",
        id="int-log-below-0",
    ),
    pytest.param(
        "lr: {type: float, low: 1, high: 8, log: true, step: 2}",
        "lr.step is 2.0, but a step cannot be combined with log: true. Remove one of them.",
        id="log-and-step",
    ),
    pytest.param(
        "lr: {type: float, low: 1, high: 8, step: 0}",
        "lr.step is 0.0, but must be above 0.",
        id="step-0",
    ),
    pytest.param(
        "n: {type: int, low: 1, high: 8, step: 9}",
        "n.step is 9, but low and high are only 7 apart. Use a smaller step.",
        id="step-too-wide",
    ),
    pytest.param(
        "lr: {type: float, low: true, high: 8}",
        "lr.low is True, but must be a number.",
        id="bool-for-number",
    ),
    pytest.param(
        "lr: {type: float, low: a, high: 8}",
        "lr.low is 'a', but must be a number.",
        id="text-for-number",
    ),
    pytest.param(
        "lr: {type: float, low: 0, high: .inf}",
        "lr.high is inf, but must be a finite number.",
        id="infinite",
    ),
    pytest.param(
        "n: {type: int, low: 1.5, high: 8}",
        "n.low is 1.5, but must be a whole number for type int. Or use type: float.",
        id="fraction-for-int",
    ),
    pytest.param(
        "lr: {type: float, low: 1, high: 2, log: 1}",
        "lr.log is 1, but must be true or false.",
        id="log-not-bool",
    ),
    pytest.param(
        "o: {type: categorical, choices: []}",
        "o.choices is empty, but must have at least one value.",
        id="no-choice",
    ),
    pytest.param(
        "o: {type: categorical, choices: sgd}",
        "o.choices is 'sgd', but must be a list, such as [sgd, adamw].",
        id="choices-not-a-list",
    ),
    pytest.param(
        "o: {type: categorical, choices: [[1, 2]]}",
        "o.choices[0] is [1, 2], but a choice must be text, a number, true or false, or null. "
        "Give it a short name and look the rest up in your training code.",
        id="choice-is-a-list",
    ),
    pytest.param(
        "o: {type: categorical, choices: [1, true]}",
        "o.choices[1] is True, which equals 1 before it. Keep one.",
        id="choice-twice",
    ),
    pytest.param(
        "lr: {type: flaot, low: 1, high: 2}",
        "lr.type is 'flaot', but must be float, int or categorical. Did you mean 'float'?",
        id="unknown-type",
    ),
    pytest.param(
        "lr: {low: 1, high: 2}",
        "lr has no type, and its ends are whole numbers, so that it may be int or float. "
        "Write lr: {type: int, low: 1, high: 2}, or lr: {type: float, low: 1, high: 2}.",
        id="no-type",
    ),
    pytest.param(
        "lr: {type: float, low: 1, hihg: 2}",
        "lr.hihg is not a key of a parameter of type float. Did you mean 'high'?",
        id="unknown-key",
    ),
    pytest.param(
        "lr: {type: categorical, choices: [1], zzz: 2}",
        "lr.zzz is not a key of a parameter of type categorical. Its keys are type, choices, when.",
        id="unknown-key-far",
    ),
    pytest.param(
        "lr: {type: float}",
        "lr has no low and no high. A parameter of type float needs both ends.",
        id="no-ends",
    ),
    pytest.param(
        "o: {type: categorical}",
        "o has no choices. Add a list, such as choices: [sgd, adamw].",
        id="no-choices",
    ),
    pytest.param(
        "day: 2020-01-01",
        "day is 2020-01-01, which YAML reads as a date, but a constant must be text, a number, "
        "true or false, null, a list or a mapping. Put it in quotes.",
        id="date-constant",
    ),
    pytest.param(
        OPTIMIZER + "m: {type: int, low: 0, high: 1, when: {optimiser: sgd}}",
        "m.when.optimiser names optimiser, which is no parameter of this space. "
        "Did you mean 'optimizer'?",
        id="when-unknown",
    ),
    pytest.param(
        "m: {type: int, low: 0, high: 1, when: {optimizer: sgd}}\n" + OPTIMIZER,
        "m.when.optimizer names optimizer, which comes later. Move optimizer above m.",
        id="when-later",
    ),
    pytest.param(
        "m: {type: int, low: 0, high: 1, when: {m: 1}}",
        "m.when.m is the parameter itself. Name an earlier one.",
        id="when-itself",
    ),
    pytest.param(
        OPTIMIZER + "m: {type: int, low: 0, high: 1, when: {optimizer: [sgd, adam]}}",
        "m.when.optimizer is 'adam', but optimizer can never be that: "
        "its choices are 'sgd', 'adamw'.",
        id="when-impossible-choice",
    ),
    pytest.param(
        "n: {type: int, low: 0, high: 8, step: 4}\nm: {type: int, low: 0, high: 1, when: {n: 5}}",
        "m.when.n is 5, but n can never be that: it goes from 0 to 8 in steps of 4.",
        id="when-impossible-int",
    ),
    pytest.param(
        "x: {type: float, low: 0, high: 8}\nm: {type: int, low: 0, high: 1, when: {x: 5}}",
        "m.when.x is 5, but x can never be that: "
        "it is a float without a step, which never hits a value exactly.",
        id="when-continuous",
    ),
    pytest.param(
        "c: 3\nm: {type: int, low: 0, high: 1, when: {c: 4}}",
        "m.when.c is 4, but c is always 3.",
        id="when-constant",
    ),
    pytest.param(
        OPTIMIZER + "m: {type: int, low: 0, high: 1, when: sgd}",
        "m.when is 'sgd', but must be a mapping, such as {optimizer: sgd}.",
        id="when-not-a-mapping",
    ),
    pytest.param(
        OPTIMIZER + "m: {type: int, low: 0, high: 1, when: {optimizer: []}}",
        "m.when.optimizer is an empty list, so that it never holds. Give a value.",
        id="when-empty",
    ),
]


@pytest.mark.parametrize(("text", "message"), MISTAKES)
def test_mistake_is_named_with_its_cure(text: str, message: str) -> None:
    with pytest.raises(SpaceError) as caught:
        parse(text)
    assert str(caught.value) == message
    assert caught.value.others == ()


def test_all_mistakes_are_found_at_once() -> None:
    with pytest.raises(SpaceError) as caught:
        parse("a: {type: float, low: 2, high: 1}\nb: {type: foo}\nc: {type: int, low: 0, high: 1}")
    assert [caught.value.key, *(each.key for each in caught.value.others)] == ["a.low", "b.type"]
