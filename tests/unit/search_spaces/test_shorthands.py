"""Short forms in a search space: what each means, and the line that is asked for instead."""

from __future__ import annotations

import math
import re

import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from tuner.search_spaces import SearchSpace, SpaceError, from_json, parse_space, to_json
from tuner.search_spaces.strict_yaml import read_yaml

TAKEN = [
    ("x: [1, 2.5, a, null]", CategoricalDistribution([1, 2.5, "a", None])),
    ("x: [64]", CategoricalDistribution([64])),
    ("x: {choices: [1, 2]}", CategoricalDistribution([1, 2])),
    ("x: {low: 0.0, high: 1}", FloatDistribution(0, 1)),
    ("x: {low: 1e-5, high: 1e-1, log: true}", FloatDistribution(1e-5, 1e-1, log=True)),
    ("x: {low: 0, high: 1, step: 0.25}", FloatDistribution(0, 1, step=0.25)),
    ("x: {type: float, min: 0, max: 1}", FloatDistribution(0, 1)),
    ("x: {type: categorical, values: [1, 2]}", CategoricalDistribution([1, 2])),
    ("x: {min: 1, max: 8}", IntDistribution(1, 8)),
    ("x: {min: 0.1, max: 8}", FloatDistribution(0.1, 8)),
    ("x: {values: [a, b]}", CategoricalDistribution(["a", "b"])),
    ("x: {distribution: categorical, values: [a, b]}", CategoricalDistribution(["a", "b"])),
    ("x: {distribution: uniform, min: 0, max: 1}", FloatDistribution(0, 1)),
    ("x: {distribution: int_uniform, min: 0, max: 1}", IntDistribution(0, 1)),
    (
        "x: {distribution: log_uniform_values, min: 1e-5, max: 1e-1}",
        FloatDistribution(1e-5, 1e-1, log=True),
    ),
    (
        "x: {distribution: log_uniform, min: -9.5, max: -2.5}",
        FloatDistribution(math.exp(-9.5), math.exp(-2.5), log=True),
    ),
    ("x: {distribution: q_uniform, min: 0, max: 1, q: 0.1}", FloatDistribution(0, 1, step=0.1)),
    ("x: {distribution: q_uniform, min: 32, max: 256, q: 32}", IntDistribution(32, 256, step=32)),
    ("x: {distribution: q_uniform, min: 1, max: 9}", IntDistribution(1, 9)),
    (
        "x: {distribution: q_log_uniform_values, min: 32, max: 256, q: 1}",
        IntDistribution(32, 256, log=True),
    ),
]
CONSTANTS = [
    ("x: {value: 3}", 3),
    ("x: {value: [1, 2]}", [1, 2]),
    ("x: {value: {type: resnet, depth: 18}}", {"type": "resnet", "depth": 18}),
    ("x: {value: {value: {low: 1}}}", {"value": {"low": 1}}),
    ("x: {value: {value: 1}}", {"value": 1}),
    ("x: {value: 'uniform(0, 1)'}", "uniform(0, 1)"),
    ("x: {value: 3, distribution: constant}", 3),
    ("x: uniform", "uniform"),
]
NO_TYPE = "x has no type, and its ends are whole numbers, so that it may be int or float. "
NO_SAMPLER = "which no sampler here has. Write a range or a list, such as "
REFUSED = [
    (
        "x: {low: 0, high: 1}",
        NO_TYPE + "Write x: {type: int, low: 0, high: 1}, or x: {type: float, low: 0, high: 1}.",
    ),
    (
        "x: {min: 0, max: 1}",
        NO_TYPE + "Write x: {type: int, low: 0, high: 1}, or x: {type: float, low: 0, high: 1}.",
    ),
    (
        "x: {low: 16, high: 256, log: true}",
        NO_TYPE + "Write x: {type: int, low: 16, high: 256, log: true}, or "
        "x: {type: float, low: 16, high: 256, log: true}.",
    ),
    ("x: []", "x is an empty list, but must have at least one value."),
    (
        "x: [[1, 2], [3]]",
        "x is a list with [1, 2] in it, but a choice must be text, a number, true or false, or "
        "null. Give each choice a short name and look the rest up in your training code. If every "
        "trial gets this list, write x: {value: [[1, 2], [3]]}.",
    ),
    (
        "x: {mim: 1, mxa: 2}",
        "x is a mapping without type. Did you mean 'min' for 'mim'? Write a parameter as "
        "x: {type: float, low: 0.1, high: 1.0} or x: [a, b]. If every trial gets this mapping, "
        "write x: {value: {mim: 1, mxa: 2}}.",
    ),
    (
        "x: {parameters: {lr: {min: 0, max: 1}}}",
        "x has nested parameters. Give each parameter a name of its own, such as x.lr.",
    ),
    (
        "x: {value: 3, min: 1}",
        "x has value, which makes it a constant, and min. Write x: {value: 3}.",
    ),
    ("x: {low: 1, min: 1, max: 3}", "x has both low and min. Keep one."),
    ("x: {min: 8, max: 1.5}", "x.min is 8.0, but must be below max, which is 1.5. Swap the two."),
    ("x: {max: 3}", "x has no min. A parameter of type float needs both ends."),
    (
        "x: {values: [1, 1]}",
        "x.values[1] is 1, which equals 1 before it. Keep one.",
    ),
    ("x: [1, 1]", "x[1] is 1, which equals 1 before it. Keep one."),
    (
        "x: {values: [1, 2], min: 3}",
        "x.min is not a key of a parameter of type categorical. Its keys are type, choices, when.",
    ),
    (
        "x: {distribution: log_uniform, min: 1, max: 2}",
        "x has distribution: log_uniform, whose min and max are exponents of e in W&B. For values "
        "from 1 to 2, write x: {type: float, low: 1, high: 2, log: true}. For exponents, write "
        "x: {type: float, low: 2.718281828459045, high: 7.38905609893065, log: true}.",
    ),
    (
        "x: {distribution: q_uniform, min: 0.05, max: 1, q: 0.5}",
        "x has distribution: q_uniform, which rounds to multiples of q, but min and max are not "
        "multiples of 0.5. Write x: {type: float, low: 0.5, high: 1.0, step: 0.5}.",
    ),
    (
        "x: {distribution: q_log_uniform_values, min: 32, max: 256, q: 8}",
        "x has distribution: q_log_uniform_values with q: 8, but a log scale has no steps, except "
        "for whole numbers in steps of 1. Write x: {type: int, low: 32, high: 256, log: true}.",
    ),
    (
        "x: {distribution: normal, mu: 0, sigma: 2}",
        f"x has distribution: normal, {NO_SAMPLER}x: {{type: float, low: -4.0, high: 4.0}}.",
    ),
    (
        "x: {distribution: beta, a: 1, b: 2}",
        f"x has distribution: beta, {NO_SAMPLER}x: {{type: float, low: 0.0, high: 1.0}}.",
    ),
    (
        "x: {distribution: uniformm, min: 1, max: 4}",
        "x.distribution is 'uniformm', which is no distribution of W&B sweeps. "
        "Did you mean 'uniform'?",
    ),
    (
        "x: {distribution: uniform, min: 1, max: 4, mu: 3}",
        "x.mu is not a key of distribution: uniform.",
    ),
    ("x: {distribution: uniform, type: float}", "x has both type and distribution. Keep one."),
    (
        "x: {distribution: q_uniform, min: 0, max: 1, q: 0}",
        "x.q is 0, but must be a number above 0.",
    ),
    (
        "x: {distribution: q_uniform, min: 0, max: 1, q: 5e-324}",
        "x.q is 5e-324, too small for min and max.",
    ),
    (
        "x: loguniform(1e-4, 0.5)",
        "x is the text 'loguniform(1e-4, 0.5)', which would be a constant. Write "
        "x: {type: float, low: 0.0001, high: 0.5, log: true}. If every trial gets this text, write "
        "x: {value: 'loguniform(1e-4, 0.5)'}.",
    ),
    (
        "x: tag(log, interval(1, 8))",
        "x is the text 'tag(log, interval(1, 8))', which would be a constant. Write "
        "x: {type: float, low: 1.0, high: 8.0, log: true}. If every trial gets this text, write "
        "x: {value: 'tag(log, interval(1, 8))'}.",
    ),
    (
        "x: choice(sgd, adam)",
        "x is the text 'choice(sgd, adam)', which would be a constant. Write x: [sgd, adam]. "
        "If every trial gets this text, write x: {value: 'choice(sgd, adam)'}.",
    ),
    (
        "x: range(1, 10)",
        "x is the text 'range(1, 10)', which would be a constant. Write "
        "x: {type: int, low: 1, high: 9}. If every trial gets this text, write "
        "x: {value: 'range(1, 10)'}.",
    ),
    (
        "x: 1e-5..1e-1",
        "x is the text '1e-5..1e-1', which would be a constant. Write "
        "x: {type: float, low: 1.0e-05, high: 0.1, log: true}. If every trial gets this text, "
        "write x: {value: 1e-5..1e-1}.",
    ),
    (
        "x: 0.1 - 0.5",
        "x is the text '0.1 - 0.5', which would be a constant. Write "
        "x: {type: float, low: 0.1, high: 0.5}. If every trial gets this text, write "
        "x: {value: 0.1 - 0.5}.",
    ),
    (
        "x: 2 to 8",
        "x is the text '2 to 8', which would be a constant. Write x: {type: int, low: 2, high: 8}. "
        "If every trial gets this text, write x: {value: 2 to 8}.",
    ),
]
#: Refused for what their values say; an editor cannot know.
OF_RIGHT_SHAPE = {
    "x: {distribution: q_uniform, min: 0, max: 1, q: 5e-324}",
    "x: {low: 0, high: 1}",
    "x: {min: 0, max: 1}",
    "x: {low: 16, high: 256, log: true}",
    "x: {low: 1, min: 1, max: 3}",
    "x: {min: 8, max: 1.5}",
    "x: {values: [1, 1]}",
    "x: [1, 1]",
    "x: {distribution: log_uniform, min: 1, max: 2}",
    "x: {distribution: q_uniform, min: 0.05, max: 1, q: 0.5}",
    "x: {distribution: q_log_uniform_values, min: 32, max: 256, q: 8}",
    "x: loguniform(1e-4, 0.5)",
    "x: tag(log, interval(1, 8))",
    "x: choice(sgd, adam)",
    "x: range(1, 10)",
    "x: 1e-5..1e-1",
    "x: 0.1 - 0.5",
    "x: 2 to 8",
}


def parse(text: str) -> SearchSpace:
    return parse_space(read_yaml(text))


@pytest.mark.parametrize(("text", "distribution"), TAKEN)
def test_short_form_has_one_meaning(text: str, distribution: object) -> None:
    (parameter,) = parse(text).parameters
    assert parameter.distribution == distribution


@pytest.mark.parametrize(("text", "value"), CONSTANTS)
def test_constant_is_written_and_stored_as_one(text: str, value: object) -> None:
    space = parse(text)
    assert (space.parameters, space.constants) == ((), {"x": value})
    assert from_json(to_json(space)) == space
    assert parse_space(space.to_file_mapping()) == space


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_form_without_one_meaning_is_refused_with_the_line_to_write(
    text: str, message: str
) -> None:
    with pytest.raises(SpaceError) as caught:
        parse(text)
    assert str(caught.value) == message


LINES = [
    each
    for _, message in REFUSED
    for pair in re.findall(r"[Ww]rite (x: .*?)(?:, or (x: .*?))?\.(?= |$)", message)
    for each in pair
    if each
]


@pytest.mark.parametrize("line", LINES)
def test_line_to_write_can_be_written(line: str) -> None:
    assert len(LINES) > 20
    assert parse(line).names == ("x",)


def test_condition_may_name_a_list() -> None:
    space = parse("o: [sgd, adam]\nm: {low: 0.0, high: 0.9, when: {o: sgd}}")
    assert space.parameters[1].when == {"o": ("sgd",)}


def test_constants_of_an_older_study_are_read_as_such() -> None:
    stored = '{"declared": {"sizes": [1, 2], "extra": {"a": 1}, "v": {"value": 3}}}'
    space = from_json(stored)
    assert isinstance(space, SearchSpace)
    assert space.constants == {"sizes": [1, 2], "extra": {"a": 1}, "v": {"value": 3}}
