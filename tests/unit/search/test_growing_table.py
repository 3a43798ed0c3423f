"""PASHA's rungs: a larger one only where the order of trials changes by more than noise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.search.rungs.growing_table import GrowingTable, noise_of


def table(
    before: Sequence[float], at_top: Sequence[float], curves: Sequence[Mapping[int, float]] = ()
) -> tuple[GrowingTable, bool]:
    """Trials by number with their losses at two rungs; whether the last of them let it grow."""
    made = GrowingTable(first=1, factor=3)
    for number, (lower, upper) in enumerate(zip(before, at_top, strict=True)):
        made.come(number, 0, lower)
        made.come(number, 1, upper)
    known = curves or [{} for _ in before]
    return made, made.grow(1, lambda number: known[number])


def test_nobody_passes_the_second_rung_at_first() -> None:
    made, _ = table([0.1, 0.2, 0.3], [0.1, 0.2, 0.3])
    assert made.standing(0, 0).goes_on
    standing = made.standing(0, 1)
    assert (standing.goes_on, standing.is_at_top, standing.place) == (False, True, 0)
    made.pause(0)
    assert list(made.promotable()) == []
    assert made.leader() == 0


@pytest.mark.parametrize(
    ("before", "at_top", "grows"),
    [
        ([0.1, 0.2, 0.3], [1.1, 1.2, 1.3], False),
        ([0.1, 0.2, 0.3], [1.2, 1.1, 1.3], True),
        ([0.2, 0.2], [0.1, 0.3], False),
        ([0.1], [0.9], False),
        # Diverged ones are out of the ranking.
        ([0.1, 0.2, 0.3], [0.1, math.inf, 0.3], False),
    ],
    ids=["same order", "swapped", "tie before", "alone", "diverged"],
)
def test_it_grows_where_the_order_changes(
    before: Sequence[float], at_top: Sequence[float], grows: bool
) -> None:
    made, has_grown = table(before, at_top)
    assert has_grown is grows
    assert made.top == 1 + grows


def test_a_larger_rung_lets_those_go_on_that_wait() -> None:
    made, has_grown = table([0.1, 0.2, 0.3], [0.2, 0.1, 0.3])
    assert has_grown
    made.pause(1)
    assert list(made.promotable()) == [1]
    assert made.standing(1, 1).goes_on


def test_a_trial_below_the_largest_rung_lets_nothing_grow() -> None:
    made, _ = table([0.1, 0.2], [0.1, 0.2])
    made.come(1, 1, 0.0)
    assert not made.grow(0, lambda number: {})


def test_two_that_change_places_all_the_time_are_alike() -> None:
    curves = [{1: 0.10, 2: 0.20, 3: 0.20}, {1: 0.12, 2: 0.16, 3: 0.25}]
    _, has_grown = table([0.10, 0.12], [0.25, 0.20], curves)
    assert noise_of(curves, 3) == pytest.approx(0.05)
    assert not has_grown, "0.02 apart, where 0.05 means nothing"


@pytest.mark.parametrize(
    ("curves", "last_step", "expected"),
    [
        ([{1: 0.1, 2: 0.4, 3: 0.3}, {1: 0.2, 2: 0.3, 3: 0.4}], 3, 0.1),
        ([{1: 0.1, 2: 0.4, 3: 0.3}, {1: 0.2, 2: 0.3, 3: 0.4}], 2, None),
        ([{1: 0.1, 2: 0.2, 3: 0.3}, {1: 0.2, 2: 0.3, 3: 0.4}], 3, None),
        ([{1: 0.1, 2: 0.4, 3: 0.4}, {1: 0.2, 2: 0.3, 3: 0.3}], 3, None),
        # Only steps that both have reported are compared.
        ([{1: 0.1, 2: 0.4, 3: 0.3}, {1: 0.2, 3: 0.4}], 3, None),
        ([{1: 0.1, 2: math.nan, 3: 0.3}, {1: 0.2, 2: 0.3, 3: 0.4}], 3, None),
        ([], 3, None),
    ],
    ids=["crossed back", "not yet", "never", "crossed once", "skipped", "no number", "nobody"],
)
def test_noise_is_how_far_apart_curves_are_that_crossed_and_crossed_back(
    curves: Sequence[Mapping[int, float]], last_step: int, expected: float | None
) -> None:
    noise = noise_of(curves, last_step)
    assert noise == (expected if expected is None else pytest.approx(expected))


def noise_by_the_book(curves: Sequence[Mapping[int, float]], last: int) -> float | None:
    """Pair by pair, as the paper says it."""
    distances = []
    for i, one in enumerate(curves):
        for other in curves[:i]:
            is_above = [one[step] > other[step] for step in range(1, last + 1)]
            at_end = is_above[-1]
            opposite = [k for k, each in enumerate(is_above) if each is not at_end]
            if opposite and at_end in is_above[: opposite[-1]]:
                distances.append(abs(one[last] - other[last]))
    return float(np.percentile(distances, 90)) if distances else None


@given(
    st.lists(
        st.lists(st.floats(0, 1), min_size=6, max_size=6, unique=True), min_size=2, max_size=6
    ).filter(lambda curves: len({each for curve in curves for each in curve}) == 6 * len(curves))
)
def test_the_noise_is_the_papers(values: list[list[float]]) -> None:
    curves = [dict(enumerate(each, 1)) for each in values]
    expected = noise_by_the_book(curves, 6)
    noise = noise_of(curves, 6)
    assert noise == (expected if expected is None else pytest.approx(expected))


def test_many_long_curves_are_compared_in_part() -> None:
    curves = [{step: math.sin(step * (1 + n / 50)) for step in range(1, 2001)} for n in range(150)]
    made = GrowingTable(first=1, factor=2000)
    for number, curve in enumerate(curves):
        made.come(number, 0, curve[1])
        made.come(number, 1, curve[2000])
    looked_at = []

    def curve_of(number: int) -> Mapping[int, float]:
        looked_at.append(number)
        return curves[number]

    made.grow(1, curve_of)
    assert len(set(looked_at)) == 100
