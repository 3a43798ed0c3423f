"""A copy's parameters: near those of its parent, and always within the space."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from tuner.search.population.perturbation import Exploration, drawn, perturbed
from tuner.search_spaces import Scalar, SearchSpace, parse_space

LOT = random.Random(0)


@st.composite
def floats(draw: st.DrawFn) -> FloatDistribution:
    if draw(st.booleans()):
        low = draw(st.floats(1e-6, 1e3))
        return FloatDistribution(low, low + draw(st.floats(1e-3, 1e4)), log=True)
    low, step = draw(st.integers(-1000, 1000)), draw(st.none() | st.sampled_from([0.25, 0.5, 3.0]))
    return FloatDistribution(low, low + (step or 0.1) * draw(st.integers(1, 1000)), step=step)


@st.composite
def integers(draw: st.DrawFn) -> IntDistribution:
    if draw(st.booleans()):
        low = draw(st.integers(1, 1000))
        return IntDistribution(low, low + draw(st.integers(0, 10_000)), log=True)
    low, step = draw(st.integers(-1000, 1000)), draw(st.integers(1, 50))
    return IntDistribution(low, low + step * draw(st.integers(0, 200)), step=step)


CHOICES = st.lists(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3), min_size=1, unique_by=repr
)
DISTRIBUTIONS = st.one_of(floats(), integers(), CHOICES.map(CategoricalDistribution))


def is_in(value: Scalar, distribution: BaseDistribution) -> bool:
    return distribution._contains(distribution.to_internal_repr(value))


@pytest.mark.slow
@given(DISTRIBUTIONS, st.integers(0, 2**32), st.floats(1.01, 10.0), st.booleans())
def test_both_stay_in_the_space(
    distribution: BaseDistribution, seed: int, factor: float, up: bool
) -> None:
    lot = random.Random(seed)
    value = drawn(distribution, lot)
    assert is_in(value, distribution)
    moved = perturbed(distribution, value, factor if up else 1 / factor, lot)
    assert is_in(moved, distribution)
    assert type(moved) is type(value) or isinstance(distribution, CategoricalDistribution)


@given(integers(), st.integers(0, 2**32), st.booleans())
def test_whole_numbers_move_by_one_at_least(
    distribution: IntDistribution, seed: int, up: bool
) -> None:
    lot = random.Random(seed)
    value = drawn(distribution, lot)
    assert isinstance(value, int)
    factor = 1.2 if up else 1 / 1.2
    moved = perturbed(distribution, value, factor, lot)
    assert isinstance(moved, int)
    grows = up == (value > 0) or (value == 0 and up)
    towards_end = value + (distribution.step if grows else -distribution.step)
    if distribution.low <= towards_end <= distribution.high and value:
        assert moved != value


@pytest.mark.parametrize(
    ("distribution", "value", "factor", "expected"),
    [
        (FloatDistribution(1e-4, 1.0, log=True), 3e-4, 1.2, 3.6e-4),
        (FloatDistribution(0.0, 1.0), 0.9, 1.2, 1.0),
        (FloatDistribution(0.0, 1.0, step=0.25), 0.5, 1.2, 0.75),
        (FloatDistribution(-1.0, 1.0), -0.5, 1.2, -0.6),
        (IntDistribution(1, 100), 100, 1.2, 100),
        (IntDistribution(1, 100), 2, 1.2, 3),
        (IntDistribution(1, 100), 2, 1 / 1.2, 1),
        (IntDistribution(0, 64, step=8), 8, 1.2, 16),
        (CategoricalDistribution([128, 32, 64]), 64, 1.2, 128),
        (CategoricalDistribution([128, 32, 64]), 64, 1 / 1.2, 32),
        (CategoricalDistribution([128, 32, 64]), 128, 1.2, 128),
    ],
)
def test_numbers_are_multiplied_and_of_choices_it_is_a_neighbour(
    distribution: BaseDistribution, value: Scalar, factor: float, expected: float
) -> None:
    assert perturbed(distribution, value, factor, LOT) == pytest.approx(expected)


def test_other_choices_are_drawn_anew() -> None:
    distribution = CategoricalDistribution(["sgd", "adam", "lion"])
    found = {perturbed(distribution, "sgd", 1.2, LOT) for _ in range(60)}
    assert found == set(distribution.choices)


def test_drawn_values_are_even_in_their_logarithm() -> None:
    distribution = FloatDistribution(1e-4, 1.0, log=True)
    lot = random.Random(1)
    logs = [math.log10(float(drawn(distribution, lot) or 0.0)) for _ in range(4000)]
    shares = [sum(-4 + part <= each < -3 + part for each in logs) / 4000 for part in range(4)]
    assert shares == pytest.approx([0.25] * 4, abs=0.04)


SPACE = parse_space(
    {
        "lr": {"type": "float", "low": 1e-4, "high": 1.0, "log": True},
        "optimizer": {"type": "categorical", "choices": ["sgd", "adam"]},
        "momentum": {"type": "float", "low": 0.0, "high": 0.9, "when": {"optimizer": "sgd"}},
        "width": {"type": "int", "low": 8, "high": 64},
        "epochs": 20,
    }
)
PARENT: dict[str, Scalar] = {"lr": 0.01, "optimizer": "adam", "width": 16}


def explored(seed: int, **rules: object) -> dict[str, Scalar]:
    assert isinstance(SPACE, SearchSpace)
    settings: dict[str, object] = {"resample": 0.0, "factor": 1.2, **rules}
    exploration = Exploration(**settings)  # type: ignore[arg-type]
    return exploration.of_space(SPACE, PARENT, random.Random(seed))


def test_what_is_kept_is_as_the_parents() -> None:
    found = [explored(seed, keep=frozenset({"width", "optimizer"})) for seed in range(40)]
    assert {each["width"] for each in found} == {16}
    assert all("momentum" not in each for each in found)
    assert {round(float(each["lr"] or 0), 6) for each in found} == {0.012, 0.008333}


def test_a_condition_that_holds_now_brings_its_parameter() -> None:
    found = [explored(seed) for seed in range(40)]
    assert {"momentum" in each for each in found} == {True, False}
    assert all(("momentum" in each) == (each["optimizer"] == "sgd") for each in found)
    assert len({each.get("momentum") for each in found}) > 5


def test_with_certainty_everything_is_drawn_anew() -> None:
    found = [explored(seed, resample=1.0) for seed in range(40)]
    assert len({each["lr"] for each in found}) == 40


def test_of_a_program_that_suggests_itself_the_parents_are_changed() -> None:
    exploration = Exploration(resample=0.0, factor=2.0)
    distributions = {"lr": FloatDistribution(1e-4, 1.0, log=True)}
    found = exploration.of_distributions(distributions, {"lr": 0.1}, random.Random(3))
    assert found["lr"] in (0.2, 0.05)
