"""Rungs of several objectives: fronts go on one after the other, and the last one in part."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.search.pareto_rungs import ParetoTable, ranked

Vector = tuple[float, float]


def table(vectors: Sequence[Vector], *, factor: int = 3) -> ParetoTable:
    """Trials by number, all at rung 0 and waiting there."""
    made = ParetoTable(first=1, factor=factor)
    for number, vector in enumerate(vectors):
        made.come_with(number, 0, vector)
        made.pause(number)
    return made


def promoted(made: ParetoTable) -> list[int]:
    found = []
    while (number := next(made.promotable(), None)) is not None:
        made.unpause(number)
        found.append(number)
    return found


def test_a_front_goes_before_the_next() -> None:
    made = table([(3, 3), (2, 2), (1, 5), (4, 4), (5, 1), (6, 6), (9, 9), (8, 8), (7, 7)])
    assert sorted(promoted(made)) == [1, 2, 4]
    assert made.front_of(1, 0) == 0
    assert made.front_of(0, 0) == 1
    assert not made.standing(0, 0).goes_on


def test_of_one_front_who_stands_alone_goes_on() -> None:
    # On a line: both ends first, then the one that is far from its neighbours.
    made = table([(0, 9), (9, 0), (5, 4), (1, 8), (2, 7), (8, 1)], factor=2)
    assert sorted(promoted(made)) == [0, 1, 2]


def test_who_is_better_in_all_objectives_goes_before() -> None:
    made = table([(1, 1), (2, 2), (3, 3)])
    assert promoted(made) == [0]
    made.come_with(3, 0, (0, 0))
    assert made.standing(3, 0).place == 0
    assert not made.standing(0, 0).goes_on


def test_a_diverged_one_is_last_and_counts() -> None:
    made = table([(math.inf, math.inf), (1, 1), (2, 2)])
    assert made.standing(0, 0).loss == math.inf
    assert made.standing(0, 0).n_came == 3
    assert promoted(made) == [1]


def test_the_highest_rung_comes_first() -> None:
    made = table([(1, 1), (2, 2), (3, 3), (0, 0), (4, 4), (5, 5)])
    for number in (0, 1, 2):
        made.unpause(number)
        made.come_with(number, 1, (number, number))
        made.pause(number)
    assert made.leader() == 0
    assert list(made.promotable()) == [0, 3]


def test_the_first_passes_where_nobody_can_wait() -> None:
    made = table([(1, 1)])
    assert not made.standing(0, 0).goes_on
    made.n_least = 1
    assert made.standing(0, 0).goes_on


def test_nobody_is_ranked_where_nobody_came() -> None:
    fronts, alone = ranked(np.zeros((0, 2)), n_best=1)
    assert (len(fronts), len(alone)) == (0, 0)
    assert table([]).leader() is None


VALUES = st.integers(0, 6)


@given(
    vectors=st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=40), factor=st.integers(2, 4)
)
def test_as_many_go_on_as_may_and_no_better_one_stays(vectors: list[Vector], factor: int) -> None:
    chosen = promoted(table(vectors, factor=factor))
    assert len(chosen) == len(vectors) // factor
    left = set(range(len(vectors))) - set(chosen)
    for mine in chosen:
        for other in left:
            one, two = vectors[other], vectors[mine]
            assert one == two or not (one[0] <= two[0] and one[1] <= two[1])


@pytest.mark.parametrize("shift", [0.0, 5.0])
def test_the_size_of_an_objective_does_not_matter(shift: float) -> None:
    rng = np.random.default_rng(0)
    losses = rng.normal(size=(50, 2))
    scaled = losses * np.array([1.0, 1000.0]) + shift
    for mine, other in zip(ranked(losses, n_best=16), ranked(scaled, n_best=16), strict=True):
        np.testing.assert_allclose(mine, other)
