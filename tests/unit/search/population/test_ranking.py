"""Who of a population is weak, and who is strong, at which interval."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from tuner.search.population.ranking import Course, Mark, good_first, is_weak, strongest

LOSSES = st.lists(st.sampled_from([0.0, 1.0, 2.0, 3.0, math.inf]), min_size=1, max_size=20)


def marks_of(*losses: float) -> list[Mark]:
    return [Mark(number=i, at=5, step=5, loss=loss) for i, loss in enumerate(losses)]


def weak(quantile: float, *losses: float) -> list[int]:
    marks = marks_of(*losses)
    return [mark.number for mark in marks if is_weak(mark, marks, quantile)]


def test_a_quarter_of_eight_are_two() -> None:
    losses = (3.0, 8.0, 1.0, 7.0, 2.0, 6.0, 5.0, 4.0)
    assert weak(0.25, *losses) == [1, 3]
    assert [each.number for each in strongest(marks_of(*losses), 0.25)] == [2, 4]


def test_nobody_is_weak_before_so_many_came_that_one_can_be() -> None:
    assert weak(0.25, 1.0, 2.0, 3.0) == []
    assert weak(0.25, 1.0, 2.0, 3.0, 4.0) == [3]


def test_equals_are_not_weak() -> None:
    assert weak(0.5, 1.0, 1.0, 1.0, 1.0) == []


def test_what_is_no_number_is_never_strong() -> None:
    marks = marks_of(math.inf, math.inf, math.inf, 1.0)
    assert [each.number for each in strongest(marks, 0.5)] == [3]


def test_an_empty_place_goes_to_the_strongest_of_the_furthest_interval() -> None:
    furthest, nearer = marks_of(2.0, 1.0), marks_of(3.0, 1.0, 2.0, math.inf)
    groups = [[each.number for each in group] for group in good_first([furthest, nearer], 0.5)]
    # Then to anyone who has a value at all.
    assert groups == [[1], [1, 2], [1], [0], [1], [2], [0]]
    assert good_first([], 0.5) == []


@given(LOSSES, st.floats(0.01, 0.5))
def test_nobody_is_both_and_no_quantile_is_too_large(losses: list[float], quantile: float) -> None:
    marks = marks_of(*losses)
    strong = {each.number for each in strongest(marks, quantile)}
    assert not strong & set(weak(quantile, *losses))
    assert len(strong) <= len(losses) * quantile + 1e-6
    assert len(weak(quantile, *losses)) <= len(losses) * quantile + 1e-6


def test_the_first_report_at_an_interval_or_beyond_counts() -> None:
    course = Course(number=1, curve={2: 0.2, 4: 0.4, 6: 0.6, 12: 1.2})
    assert course.latest(5) == 10
    assert course.mark(5, 5, -1.0) == Mark(number=1, at=5, step=6, loss=-0.6)
    assert course.mark(10, 5, 1.0) == Mark(number=1, at=10, step=12, loss=1.2)
    assert course.mark(15, 5, 1.0) is None


def test_a_copy_trains_a_whole_interval_first() -> None:
    copy = Course(number=1, curve={step: 0.0 for step in range(8, 14)}, begun_at=7)
    assert copy.latest(5) is None
    assert copy.mark(10, 5, 1.0) is None
    later = Course(number=1, curve={step: 0.0 for step in range(8, 16)}, begun_at=7)
    assert later.latest(5) == 15


def test_without_a_report_there_is_no_mark() -> None:
    assert Course(number=1, curve={}).latest(5) is None


def test_nan_is_worse_than_all() -> None:
    mark = Course(number=1, curve={5: math.nan}).mark(5, 5, -1.0)
    assert mark is not None
    assert mark.loss == math.inf
