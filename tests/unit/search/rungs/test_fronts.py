"""Fronts that are kept up to date are those that sorting everything anew gives."""

from __future__ import annotations

import numpy as np
import pytest
from optuna.study._multi_objective import _fast_non_domination_rank

from tuner.search.rungs.fronts import Fronts


@pytest.mark.slow
@pytest.mark.parametrize("n_objectives", [1, 2, 3])
@pytest.mark.parametrize("n_values", [4, 1000])
def test_one_after_the_other_as_all_at_once(n_objectives: int, n_values: int) -> None:
    rng = np.random.default_rng(n_objectives)
    vectors = rng.integers(0, n_values, size=(300, n_objectives)).astype(float)
    one_by_one, at_once = Fronts(), Fronts()
    for n_known, vector in enumerate(vectors, start=1):
        one_by_one.add(vector.tolist())
        at_once.add(vector.tolist())
        expected = _fast_non_domination_rank(vectors[:n_known])
        assert one_by_one.ranks(n_known).tolist() == expected.tolist()
    assert at_once.ranks(300).tolist() == expected.tolist()
    assert one_by_one.losses.tolist() == vectors.tolist()


def test_a_front_that_is_beaten_as_a_whole_moves_as_a_whole() -> None:
    fronts = Fronts()
    for k in range(40):
        fronts.add([float(k), float(40 - k)])
    assert set(fronts.ranks(40).tolist()) == {0}
    fronts.add([-1.0, -1.0])
    assert fronts.ranks(41).tolist() == [1] * 40 + [0]
    fronts.add([0.5, 20.5])
    assert fronts.ranks(42)[-1] == 1


def test_more_at_a_time_than_are_compared_at_a_time() -> None:
    # Each of the first 600 falls but the last, and beats its own of the second front.
    fronts = Fronts()
    vectors = [[float(k + shift), float(600 - k + shift)] for shift in (0, 10) for k in range(600)]
    for vector in vectors:
        fronts.add(vector)
    fronts.ranks(1)
    vectors.append([-0.5, 1.5])
    fronts.add(vectors[-1])
    expected = _fast_non_domination_rank(np.array(vectors))
    assert fronts.ranks(len(vectors)).tolist() == expected.tolist()
    assert (expected[:600] == 1).sum() == 599


def test_those_behind_the_best_share_a_front() -> None:
    fronts = Fronts()
    for k in range(20):
        fronts.add([float(k), float(k)])
    assert fronts.ranks(3).tolist() == [0, 1, 2] + [3] * 17
    assert fronts.ranks(1).tolist() == [0] + [1] * 19


def test_nothing_is_sorted_where_nothing_is() -> None:
    assert Fronts().ranks(1).tolist() == []
