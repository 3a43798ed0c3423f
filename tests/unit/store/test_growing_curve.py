"""A curve that grows is to each who holds it the dict that it was when they got it."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.store.optuna_tables.curves.growing_curve import GrowingCurve, grown

_REPORTS = st.lists(st.tuples(st.integers(0, 9), st.floats(allow_nan=False)), max_size=20)


@given(_REPORTS)
def test_each_version_stays_as_it_was(reports: list[tuple[int, float]]) -> None:
    curve, plain = grown({}, -1, 0.5), {-1: 0.5}
    versions = [(curve, dict(plain))]
    for step, value in reports:
        curve, plain[step] = grown(curve, step, value), value
        versions.append((curve, dict(plain)))
    for held, expected in versions:
        assert len(held) == len(expected)
        assert list(held) == list(expected)
        assert held == expected
        assert [held[step] for step in expected] == list(expected.values())
        assert list(held.items()) == list(expected.items())
        assert all((step in held) == (step in expected) for step in range(-1, 10))


def test_two_that_come_from_the_same_one_do_not_see_each_other() -> None:
    first = grown({}, 1, 0.1)
    left, right = grown(first, 2, 0.2), grown(first, 3, 0.3)
    assert (first, left, right) == ({1: 0.1}, {1: 0.1, 2: 0.2}, {1: 0.1, 3: 0.3})


def test_views_do_not_grow() -> None:
    curve = grown({}, 1, 0.1)
    items, values = curve.items(), curve.values()
    grown(curve, 2, 0.2)
    assert list(items) == [(1, 0.1)]
    assert list(values) == [0.1]


def test_dict_that_it_came_from_stays_its_owners() -> None:
    plain = {1: 0.1}
    curve = grown(plain, 2, 0.2)
    plain[3] = 0.3
    assert curve == {1: 0.1, 2: 0.2}
    assert plain == {1: 0.1, 3: 0.3}


def test_who_changes_one_changes_no_other() -> None:
    first = grown({}, 1, 0.1)
    second = grown(first, 2, 0.2)
    first[5], second[1] = 0.5, 0.9
    del second[2]
    assert (first, second) == ({1: 0.1, 5: 0.5}, {1: 0.9})
    with pytest.raises(KeyError):
        first[2]


def test_copies_are_dicts() -> None:
    curve = GrowingCurve({1: 0.1})
    for made in (copy.copy(curve), copy.deepcopy(curve), pickle.loads(pickle.dumps(curve))):
        assert type(made) is dict
        assert made == {1: 0.1}
    assert repr(curve) == "{1: 0.1}"
