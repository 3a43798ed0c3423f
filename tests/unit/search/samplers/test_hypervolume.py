"""Expected hypervolume improvement is what a large sample of outcomes improves in the mean."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tuner.search.samplers.curve_gp.hypervolume import (
    expected_hypervolume_improvement,
    front_of,
    reference_point,
)
from tuner.search.samplers.curve_gp.scalarization import Weighting
from tuner.store.optuna_compat import compute_hypervolume

Array = NDArray[np.float64]


def improvement(front: Array, point: Array, reference: Array) -> float:
    inside = np.vstack([front, point[None]])
    inside = inside[(inside < reference).all(axis=1)]
    if not len(inside):
        return 0.0
    return float(compute_hypervolume(inside, reference) - compute_hypervolume(front, reference))


@pytest.mark.parametrize("n_objectives", [2, 3, 4])
def test_what_is_certain_improves_by_what_it_dominates(n_objectives: int) -> None:
    rng = np.random.default_rng(n_objectives)
    losses = rng.random((30, n_objectives))
    front = front_of(losses)
    reference = reference_point(front, losses)
    points = rng.random((40, n_objectives)) * 1.2 - 0.1
    found = expected_hypervolume_improvement(
        points, np.full_like(points, 1e-9), front=front, reference=reference
    )
    expected = [improvement(front, each, reference) for each in points]
    assert found == pytest.approx(expected, abs=1e-6)
    assert max(expected) > 0.01
    assert min(expected) == 0.0


@pytest.mark.parametrize("n_objectives", [2, 3])
def test_what_is_uncertain_improves_as_in_a_large_sample(n_objectives: int) -> None:
    rng = np.random.default_rng(n_objectives)
    front = front_of(rng.random((12, n_objectives)))
    reference = np.full(n_objectives, 1.1)
    mean, deviation = rng.random(n_objectives), rng.random(n_objectives) * 0.4
    found = expected_hypervolume_improvement(
        mean[None], deviation[None], front=front, reference=reference
    )
    drawn = mean + deviation * rng.normal(size=(4000, n_objectives))
    sample = [improvement(front, each, reference) for each in drawn]
    error = np.std(sample) / len(sample) ** 0.5
    assert found[0] == pytest.approx(np.mean(sample), abs=4.0 * error)


def test_a_front_has_what_nobody_dominates_once() -> None:
    losses = np.array([[1.0, 2.0], [2.0, 1.0], [2.0, 2.0], [1.0, 2.0], [3.0, 1.0]])
    assert front_of(losses).tolist() == [[1.0, 2.0], [2.0, 1.0]]


def test_the_reference_point_is_behind_the_front_in_each_objective() -> None:
    losses = np.array([[0.0, 4.0], [2.0, 0.0], [5.0, 8.0]])
    assert reference_point(front_of(losses), losses).tolist() == pytest.approx([2.2, 4.4])
    # A front of one point: the width of all stands for its own; where all are equal, 1.
    assert reference_point(losses[:1], losses).tolist() == pytest.approx([0.5, 4.8])
    assert reference_point(losses[:1], losses[:1]).tolist() == pytest.approx([0.1, 4.1])


def test_a_weighting_prefers_what_is_better_in_all_objectives() -> None:
    front = front_of(np.array([[0.0, 1.0, 0.5], [1.0, 0.0, 0.5]]))
    for seed in range(5):
        weighting = Weighting(front, np.full(3, 1.1), np.random.default_rng(seed))
        better, worse = weighting.expected_improvement(
            np.array([[-0.2, -0.2, 0.3], [1.0, 1.0, 1.0]]), np.full((2, 3), 0.01)
        )
        assert better > 0.0
        assert worse == 0.0
