"""Rungs of several objectives: fronts continue one after the other, and the last one in part."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.study._multi_objective import _fast_non_domination_rank

from tuner.search.rungs.fronts import Losses, Places
from tuner.search.rungs.pareto_table import ParetoTable, crowding

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
    made.is_final = True
    assert made.standing(0, 0).goes_on


def test_equals_share_a_verdict_where_nobody_can_wait() -> None:
    made = table([(1, 2), (1, 2), (1, 2), (2, 1)])
    assert [made.standing(number, 0).goes_on for number in range(4)] == [True, False, False, False]
    made.is_final = True
    assert [made.standing(number, 0).goes_on for number in range(4)] == [True, True, True, False]


def test_nobody_is_ranked_where_nobody_came() -> None:
    assert len(crowding(np.zeros((0, 2)), np.zeros(0, dtype=np.int64))) == 0
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
    places = [
        [made.standing(number, 0).place for number in range(50)]
        for made in (table(each.tolist()) for each in (losses, scaled))
    ]
    assert places[0] == places[1]


# -- beside the plain computation ------------------------------------------------------------------


def plainly(vectors: Mapping[int, Sequence[float]], n_best: int) -> dict[int, tuple[int, int]]:
    """Place and front by trial number: everything anew, and front by front."""
    numbers = sorted(vectors)
    losses = np.array([vectors[each] for each in numbers], dtype=float)
    fronts: Places = _fast_non_domination_rank(losses, n_below=n_best)
    alone = np.zeros(len(losses))
    for front in np.unique(fronts):
        members = np.flatnonzero(fronts == front)
        alone[members] = crowding_of_one(losses[members])
    in_order = np.lexsort((np.array(numbers), -alone, fronts))
    return {numbers[each]: (place, int(fronts[each])) for place, each in enumerate(in_order)}


def crowding_of_one(losses: Losses) -> Losses:
    distances = np.zeros(len(losses))
    for column in losses.T:
        order = np.argsort(column, kind="stable")
        ordered = column[order]
        if not np.isfinite(ordered[[0, -1]]).all() or ordered[0] == ordered[-1]:
            continue
        gaps = np.full(len(losses), math.inf)
        gaps[1:-1] = (ordered[2:] - ordered[:-2]) / (ordered[-1] - ordered[0])
        distances[order] += gaps
    return distances


KINDS: Mapping[str, Callable[[np.random.Generator, int], Losses]] = {
    "any": lambda rng, n: rng.normal(size=n),
    "few values": lambda rng, n: rng.integers(0, 5, size=n).astype(float),
    "one front": lambda rng, n: (lambda v: -v / np.linalg.norm(v))(np.abs(rng.normal(size=n))),
    "alike": lambda rng, n: rng.normal() + 0.3 * rng.normal(size=n),
    "same": lambda rng, n: np.zeros(n),
}


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_objectives=st.integers(2, 4),
    kind=st.sampled_from(sorted(KINDS)),
    factor=st.integers(2, 4),
    is_final=st.booleans(),
)
def test_decisions_are_those_of_the_plain_computation(
    seed: int, n_objectives: int, kind: str, factor: int, is_final: bool
) -> None:
    """Trials come to two rungs in any order, some of them diverged; one is looked at after each."""
    rng = np.random.default_rng(seed)
    made = ParetoTable(first=1, factor=factor)
    made.is_final = is_final
    vectors: list[dict[int, Sequence[float]]] = [{}, {}]
    for number in rng.permutation(80).tolist():
        rung = int(rng.random() < 0.3)
        losses = KINDS[kind](rng, n_objectives).tolist()
        if rng.random() < 0.05:
            losses = [math.inf] * n_objectives
        made.come_with(number, rung, losses)
        for each in range(rung + 1):
            vectors[each][number] = losses
        made.pause(number)
        if rng.random() < 0.7:
            continue  # Nobody asks, so that several are new at a time.
        n_going = max(int(is_final), len(vectors[rung]) // factor)
        expected = plainly(vectors[rung], max(1, n_going))
        for other in vectors[rung]:
            standing = made.standing(other, rung)
            assert (standing.place, made.front_of(other, rung)) == expected[other]
            assert standing.goes_on == passes(other, vectors[rung], expected, n_going, is_final)
        assert_the_right_ones_go_on(made, vectors, factor=factor, is_final=is_final)
        if (next_one := next(made.promotable(), None)) is not None and rng.random() < 0.7:
            made.unpause(next_one)


def passes(
    number: int,
    vectors: Mapping[int, Sequence[float]],
    order: Mapping[int, tuple[int, int]],
    n_going: int,
    is_final: bool,
) -> bool:
    """Where trials end that do not pass, so do all that equal one that passes."""
    equal = [number]
    if is_final:
        equal = [each for each in vectors if vectors[each] == vectors[number]]
    return min(order[each][0] for each in equal) < n_going


def assert_the_right_ones_go_on(
    made: ParetoTable,
    vectors: Sequence[Mapping[int, Sequence[float]]],
    *,
    factor: int,
    is_final: bool,
) -> None:
    expected, leaders = [], []
    for rung in (1, 0):
        waiting = [each for each in made.paused if made.rung_of(each) == rung]
        if not waiting:
            continue
        n_going = max(int(is_final), len(vectors[rung]) // factor)
        order = plainly(vectors[rung], max(1, n_going))
        best = min(waiting, key=lambda each: order[each])
        leaders.append(best)
        goes_on = passes(best, vectors[rung], order, n_going, is_final)
        expected += [best] if goes_on else []
    assert list(made.promotable()) == expected
    assert made.leader() == next(iter(leaders), None)
