"""The first configurations of a study cover its space, whatever `auto` picks for it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
import torch
from numpy.typing import NDArray
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from tuner.config import StudyConfig, load_study_file
from tuner.search.defaults import sampler_of
from tuner.search.samplers.covering import value_at
from tuner.search.samplers.sobol import N_DIMENSIONS, coordinate, sobol_bits
from tuner.search_spaces import SearchSpace
from tuner.store.optuna_compat import SearchSpaceTransform

SEEDS = range(50)
HEAD = "study: digits\ntrial: {function: 'train:train'}\n"
#: A range by its logarithm, whole numbers, choices, and a parameter that not every trial has.
MIXED = """
search_space:
  lr: {type: float, low: 0.0001, high: 1.0, log: true}
  layers: {type: int, low: 1, high: 4}
  kind: {type: categorical, choices: [adam, sgd]}
  momentum: {type: float, low: 0.0, high: 1.0, when: {kind: sgd}}
"""
PICKED = {
    "curve_gp": "search_space: {x: {type: float, low: 0, high: 1}, k: [a, b, c, d]}\n",
    "tpe, several objectives": "search_space: {x: {type: float, low: 0, high: 1}, k: [a, b, c, d]}"
    "\nobjectives: {loss: minimize, size: minimize}\n",
    "tpe, many trials": "search_space: {x: {type: float, low: 0, high: 1}, k: [a, b, c, d]}"
    "\nbudget: {trials: 5000}\n",
    "random, a population": "search_space: {x: {type: float, low: 0, high: 1}, k: [a, b, c, d]}"
    "\npruner: pbt\n",
}


@pytest.fixture(autouse=True)
def _quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def a_config(folder: Path, text: str) -> StudyConfig:
    file = folder / "study.yaml"
    file.write_text(HEAD + text)
    return load_study_file(file, environ={})


def a_study(config: StudyConfig, *, seed: int, sequence_seed: int | None = None) -> optuna.Study:
    sampler = sampler_of(config, seed=seed, sequence_seed=sequence_seed)
    directions = [each.value for each in config.objectives.values()] or ["minimize"]
    return optuna.create_study(directions=directions, sampler=sampler)


def first(study: optuna.Study, config: StudyConfig, n: int) -> list[dict[str, Any]]:
    """So many that are asked for at once: none has reported."""
    space = config.search_space
    assert isinstance(space, SearchSpace)
    return [space.suggest(study.ask()) for _ in range(n)]


def discrepancy(points: NDArray[np.float64]) -> float:
    """Of [n, d] points, centered (Hickernell, 1998); the smaller the more evenly spread.

    The star discrepancy, anchored in one corner, is no measure of so few points in ten dimensions
    (Matousek, 1998): it is the smaller the nearer points are to the opposite corner.
    """
    n, d = points.shape
    far = np.abs(points - 0.5)
    apart = np.abs(points[:, None] - points[None, :])
    alone = np.prod(1.0 + 0.5 * far - 0.5 * far**2, axis=1).sum()
    pairs = np.prod(1.0 + 0.5 * (far[:, None] + far[None, :] - apart), axis=2).sum()
    return math.sqrt((13 / 12) ** d - 2.0 / n * alone + pairs / n**2)


def spread_of(n: int, d: int, seed: int) -> float:
    points = [[coordinate(k, place, seed=seed) for place in range(d)] for k in range(n)]
    return discrepancy(np.array(points))


@pytest.mark.parametrize("d", range(1, 11))
@pytest.mark.parametrize("n", [4, 32])
def test_points_are_spread_more_evenly_than_random_ones(n: int, d: int) -> None:
    ours = [spread_of(n, d, seed) for seed in SEEDS]
    drawn = [discrepancy(np.random.default_rng(seed).random((n, d))) for seed in SEEDS]
    assert statistics.fmean(ours) < statistics.fmean(drawn)
    assert sum(a < b for a, b in zip(ours, drawn, strict=True)) > 40


def test_directions_are_those_of_torch() -> None:
    points = torch.quasirandom.SobolEngine(N_DIMENSIONS).draw(512, dtype=torch.float64).numpy()
    # Torch walks through each block of points in the order of the Gray code.
    ours = [
        [sobol_bits(k ^ (k >> 1), place) / 2**32 for place in range(N_DIMENSIONS)]
        for k in range(512)
    ]
    assert np.array_equal(points, np.array(ours))


@pytest.mark.parametrize("dimension", [0, 5, N_DIMENSIONS - 1, N_DIMENSIONS, 3 * N_DIMENSIONS + 7])
@pytest.mark.parametrize("n", [4, 32, 256])
def test_each_dimension_has_one_point_in_each_part_of_its_range(dimension: int, n: int) -> None:
    for seed in (0, 1, 2**63):
        parts = sorted(int(coordinate(k, dimension, seed=seed) * n) for k in range(n))
        assert parts == list(range(n))


def test_dimensions_beyond_the_table_are_not_those_of_the_table() -> None:
    points = np.array(
        [
            [coordinate(k, d, seed=3) for d in (0, 5, N_DIMENSIONS, N_DIMENSIONS + 5)]
            for k in range(256)
        ]
    )
    related = np.abs(np.corrcoef(points.T) - np.eye(4))
    assert related.max() < 0.2


@pytest.mark.parametrize("text", PICKED.values(), ids=PICKED)
def test_workers_that_ask_at_once_cover_the_space(tmp_path: Path, text: str) -> None:
    config = a_config(tmp_path, text)
    for seed in SEEDS:
        found = first(a_study(config, seed=seed), config, 4)
        assert sorted(int(each["x"] * 4) for each in found) == [0, 1, 2, 3]
        assert sorted(each["k"] for each in found) == ["a", "b", "c", "d"]


def test_ranges_of_every_kind_are_covered(tmp_path: Path) -> None:
    config = a_config(tmp_path, MIXED)
    for seed in SEEDS:
        found = first(a_study(config, seed=seed), config, 32)
        decades = [math.floor(math.log10(each["lr"])) for each in found]
        assert [decades.count(place) for place in range(-4, 0)] == [8] * 4
        layers = [each["layers"] for each in found]
        assert [layers.count(value) for value in range(1, 5)] == [8] * 4
        momenta = sorted(each["momentum"] for each in found if each["kind"] == "sgd")
        assert len(momenta) == 16
        # At random the widest gap between 16 of them is 0.2 in the median.
        gaps = [b - a for a, b in zip([0.0, *momenta], [*momenta, 1.0], strict=True)]
        assert max(gaps) < 0.35


def test_the_same_seed_gives_the_same(tmp_path: Path) -> None:
    config = a_config(tmp_path, MIXED)
    once, again = (first(a_study(config, seed=7), config, 32) for _ in range(2))
    assert once == again
    assert once != first(a_study(config, seed=8), config, 32)


def test_a_second_dispatcher_goes_on_with_the_sequence(tmp_path: Path) -> None:
    """It has a seed of its own, and the study's for what all of them walk together."""
    config = a_config(tmp_path, MIXED)
    alone = first(a_study(config, seed=7), config, 32)
    study = a_study(config, seed=7)
    begun = first(study, config, 10)
    study.sampler = sampler_of(config, seed=1234, sequence_seed=7)
    joined = begun + first(study, config, 22)
    assert joined == alone
    assert len({each["lr"] for each in joined}) == 32


def test_what_is_named_in_the_study_file_draws_as_in_optuna(tmp_path: Path) -> None:
    config = a_config(tmp_path, MIXED + "sampler: random\n")
    plain = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=7))
    assert first(a_study(config, seed=7), config, 8) == first(plain, config, 8)


@pytest.mark.parametrize("text", ["", "sampler: curve_gp\n", "pruner: pbt\n"])
def test_parameters_that_only_the_program_knows_cover_the_space_too(
    tmp_path: Path, text: str
) -> None:
    """Also those of one branch: each has the place of those that its trial has suggested."""
    study = a_study(a_config(tmp_path, text), seed=7)
    again = a_study(a_config(tmp_path, text), seed=7)

    def suggested(trial: optuna.Trial) -> dict[str, Any]:
        trial.suggest_float("lr", 1e-4, 1.0, log=True)
        if trial.suggest_categorical("kind", ["adam", "sgd"]) == "sgd":
            trial.suggest_float("momentum", 0.0, 1.0)
        return trial.params

    found = [suggested(study.ask()) for _ in range(32)]
    assert sorted(math.floor(-8 * math.log10(each["lr"])) for each in found) == list(range(32))
    assert [each["kind"] for each in found].count("sgd") == 16
    momenta = sorted(each["momentum"] for each in found if each["kind"] == "sgd")
    gaps = [b - a for a, b in zip([0.0, *momenta], [*momenta, 1.0], strict=True)]
    assert max(gaps) < 0.35
    assert found == [suggested(again.ask()) for _ in range(32)]


@pytest.mark.parametrize(
    "distribution",
    [
        FloatDistribution(0.1, 10.0, log=True),
        FloatDistribution(-1.0, 1.0, step=0.25),
        FloatDistribution(2.0, 2.0),
        IntDistribution(1, 1000, log=True),
        IntDistribution(0, 10, step=5),
        CategoricalDistribution([None, True, 3, "x"]),
    ],
)
def test_values_are_within_their_range_and_in_order(distribution: BaseDistribution) -> None:
    values: Sequence[Any] = [value_at(k / 64 + 1 / 128, distribution) for k in range(64)]
    inner = [distribution.to_internal_repr(each) for each in values]
    assert all(map(distribution._contains, inner))
    assert inner == sorted(inner)
    if isinstance(distribution, CategoricalDistribution):
        assert [values.count(each) for each in distribution.choices] == [16] * 4
    elif not distribution.single():
        transform = SearchSpaceTransform({"x": distribution}, transform_0_1=True)
        assert float(transform.transform({"x": values[0]})[0]) < 0.2
