"""What is picked where the study file names no sampler, or no pruner."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from optuna.samplers import TPESampler

from tuner.config import StudyConfig, load_study_file
from tuner.errors import ConfigError
from tuner.search.defaults import choose, pruner_of, sampler_of
from tuner.search.pruners.asha import AshaPruner
from tuner.search.samplers.bounded import BoundedSampler
from tuner.search.samplers.curve_gp.sampler import CurveGPSampler

SMALL = "study: digits\ntrial: {function: 'train:train'}\n"
SPACE = "search_space: {lr: {type: float, low: 0.001, high: 0.1, log: true}}\n"
CONDITIONAL = (
    "search_space: {kind: {type: categorical, choices: [a, b]}, "
    "lr: {type: float, low: 0.1, high: 0.2, when: {kind: a}}}\n"
)
OBJECTIVES = "objectives: {loss: minimize, latency: minimize}\n"
FIVE = "objectives: {a: minimize, b: minimize, c: minimize, d: minimize, e: maximize}\n"

Load = Callable[[str], StudyConfig]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def read(text: str) -> StudyConfig:
        file = tmp_path / "study.yaml"
        file.write_text(text)
        return load_study_file(file, environ={})

    return read


@pytest.mark.parametrize(
    ("text", "sampler", "pruner"),
    [
        pytest.param(SMALL + SPACE, "curve_gp", "asha", id="declared-space"),
        pytest.param(SMALL + SPACE + "sampler: auto", "curve_gp", "asha", id="by-name"),
        pytest.param(SMALL + SPACE + "sampler: {seed: 3}", "curve_gp", "asha", id="seed-alone"),
        pytest.param(SMALL, "curve_gp", "asha", id="define-by-run"),
        pytest.param(SMALL + CONDITIONAL, "curve_gp", "asha", id="conditions"),
        pytest.param(
            SMALL + CONDITIONAL + OBJECTIVES, "curve_gp", "asha", id="conditions-of-several"
        ),
        pytest.param(SMALL + SPACE + OBJECTIVES, "curve_gp", "asha", id="several-objectives"),
        pytest.param(SMALL + SPACE + FIVE, "tpe", "asha", id="five-objectives"),
        pytest.param(SMALL + OBJECTIVES, "curve_gp", "asha", id="several-define-by-run"),
        pytest.param(SMALL + SPACE + "budget: {trials: 10001}", "tpe", "asha", id="many-trials"),
        pytest.param(SMALL + SPACE + "budget: {trials: 10000}", "curve_gp", "asha", id="some"),
        pytest.param(
            SMALL + SPACE + OBJECTIVES + "budget: {trials: 2001}", "tpe", "asha", id="many-of-two"
        ),
        pytest.param(
            SMALL + SPACE + OBJECTIVES + "budget: {trials: 2000}",
            "curve_gp",
            "asha",
            id="some-of-two",
        ),
        pytest.param(SMALL + SPACE + "sampler: random", "random", "asha", id="own-sampler"),
        pytest.param(SMALL + SPACE + "pruner: median", "curve_gp", "median", id="own-pruner"),
        pytest.param(SMALL + SPACE + "pruner: pbt", "random", "pbt", id="population"),
        pytest.param(SMALL + SPACE + "pruner: auto", "curve_gp", "asha", id="pruner-by-name"),
    ],
)
def test_it_is_picked_by_the_study(load: Load, text: str, sampler: str, pruner: str) -> None:
    choice = choose(load(text))
    assert (choice.sampler.name, choice.pruner.name) == (sampler, pruner)


def test_the_seed_stays_with_the_sampler(load: Load) -> None:
    assert choose(load(SMALL + SPACE + "sampler: {seed: 3}")).sampler.seed == 3


def test_what_is_picked_can_be_made(load: Load) -> None:
    config = load(SMALL + SPACE)
    sampler, pruner = sampler_of(config, seed=1), pruner_of(config)
    assert isinstance(sampler, BoundedSampler)
    assert isinstance(sampler.inner, CurveGPSampler)
    assert isinstance(pruner, AshaPruner)
    assert not pruner.promotes
    several = load(SMALL + SPACE + OBJECTIVES)
    fronts = sampler_of(several, seed=1)
    assert isinstance(fronts, BoundedSampler)
    assert isinstance(fronts.inner, CurveGPSampler)
    tpe = sampler_of(load(SMALL + SPACE + FIVE), seed=1)
    assert isinstance(tpe, BoundedSampler)
    assert isinstance(tpe.inner, TPESampler)
    by_rank = pruner_of(several)
    assert isinstance(by_rank, AshaPruner)
    assert by_rank.promotes
    assert by_rank.least_rung == 1


def test_people_are_told_why(load: Load) -> None:
    choice = choose(load(SMALL + FIVE + "pruner: median"))
    assert choice.sampler_reason == "there are more than 4 objectives"
    assert choice.pruner_reason == "named in the study file"
    assert choose(load(SMALL + SPACE + OBJECTIVES)).pruner_reason == (
        "where trials report all objectives, they pause at steps 1, 3, 9 ..., and the best third "
        "by Pareto rank continues"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "sampler: {n_startup_trials: 3}",
            "sampler.n_startup_trials is given, but no sampler that takes it. "
            "Name one: {name: tpe}.",
        ),
        (
            "pruner: {min_resource: 3}",
            "pruner.min_resource is given, but no pruner that takes it. Name one: {name: asha}.",
        ),
        (
            "sampler: {nmae: tpe}",
            "sampler.nmae is given, but no sampler that takes it. Did you mean 'name'? "
            "Name one: {name: tpe}.",
        ),
    ],
)
def test_arguments_need_a_name(load: Load, text: str, expected: str) -> None:
    config = load(SMALL + SPACE + text)
    with pytest.raises(ConfigError) as raised:
        choose(config)
    assert str(raised.value).endswith(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "pruner: {name: pbt, keep: [lrr]}\n",
            "pruner.keep has 'lrr', but the parameters that are searched are lr. Did you mean "
            "'lr'?",
            id="kept-name",
        ),
        pytest.param(
            "pruner: pbt\nconfirm: {top: 2, seeds: 2}\n",
            "confirm runs the leaders again with their parameters, and with pruner pbt these are "
            "only their last ones. Remove it, and train again with `tuner schedule STUDY -o FILE`.",
            id="confirm",
        ),
    ],
)
def test_what_a_population_cannot_do_is_refused(load: Load, text: str, expected: str) -> None:
    config = load(SMALL + SPACE + text)
    with pytest.raises(ConfigError) as caught:
        pruner_of(config)
    assert str(caught.value) == f"{config.file}: {expected}"
