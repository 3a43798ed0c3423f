"""A curve is as good as the dict of its reports, and is fetched when first looked at."""

from __future__ import annotations

import copy
import math
import pickle
import sys
import tracemalloc
from array import array
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.store.optuna_tables.curves.lazy_curve import Batch, Curve, compact, read_ahead

_STEPS = st.integers(min_value=-(2**70), max_value=2**70) | st.integers(0, 9)
_REPORTS = st.dictionaries(_STEPS, st.floats()) | st.builds(
    lambda steps, seed: {step: seed / (step + 0.5) for step in steps},
    st.builds(range, st.integers(-5, 5), st.integers(-5, 50), st.integers(1, 7)),
    st.floats(-1e9, 1e9),
)


def unread(reports: Mapping[int, float]) -> Curve:
    batch = Batch([1], lambda ids: {1: Curve.of(reports)})
    return batch.curves()[1]


@given(_REPORTS, st.sampled_from([Curve.of, unread]), _STEPS)
def test_a_curve_reads_like_its_dict(
    reports: dict[int, float], made: Callable[[Mapping[int, float]], Curve], other: int
) -> None:
    assert len(made(reports)) == len(reports)
    assert list(made(reports)) == list(reports)
    assert bool(made(reports)) == bool(reports)
    assert list(made(reports).keys()) == list(reports.keys())
    assert repr(list(made(reports).items())) == repr(list(reports.items()))
    assert repr(list(made(reports).values())) == repr(list(reports.values()))
    assert repr({**made(reports)}) == repr(made(reports)) == repr(reports)
    for step in (*reports, other):
        assert (step in made(reports)) == (step in reports)
        assert repr(made(reports).get(step)) == repr(reports.get(step))
    if other not in reports:
        with pytest.raises(KeyError, match=str(other)):
            made(reports)[other]


@given(_REPORTS, _REPORTS)
def test_curves_are_equal_as_their_dicts_are(
    one: dict[int, float], other: dict[int, float]
) -> None:
    assert Curve.of(one) == one
    assert one == Curve.of(one)
    assert Curve.of(one) == Curve.of(dict(reversed(one.items()))) == unread(one)
    is_equal = repr(sorted(one.items())) == repr(sorted(other.items()))
    if is_equal or not any(value == 0 for value in (*one.values(), *other.values())):
        assert (Curve.of(one) == Curve.of(other)) is is_equal
        assert (Curve.of(one) == other) is is_equal


@pytest.mark.parametrize("other", [None, 1, [], "", {1: 0.5, 2: 0.5}, {1: 0.25}, {2: 0.5}, {}])
def test_a_curve_differs_from_what_has_other_items(other: object) -> None:
    assert Curve.of({1: 0.5}) != other
    assert other != Curve.of({1: 0.5})


@given(_REPORTS)
def test_a_copy_is_equal_wherever_it_is_made(reports: dict[int, float]) -> None:
    curve = unread(reports)
    assert copy.copy(curve) == copy.deepcopy(curve) == reports
    assert type(pickle.loads(pickle.dumps(curve))) is dict
    assert pickle.loads(pickle.dumps(curve)) == curve


def test_a_curve_cannot_be_changed() -> None:
    curve: Any = Curve.of({1: 0.5})
    with pytest.raises(TypeError):
        curve[2] = 0.5
    with pytest.raises(TypeError):
        hash(curve)


def test_compact_twice_is_the_same_curve() -> None:
    assert compact(compact({1: 0.5})) == {1: 0.5}
    curve = compact({1: 0.5})
    assert compact(curve) is curve


@pytest.mark.parametrize("steps", [range(1, 101), [step**2 for step in range(100)]])
def test_curves_with_equal_steps_take_little_more_than_their_values(steps: list[int]) -> None:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        curves = [Curve.of({step: step / (n + 1) for step in steps}) for n in range(100)]
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    values_alone = sys.getsizeof(array("d", range(100)))
    assert taken / len(curves) < 1.3 * values_alone


LOOKS: dict[str, Callable[[Curve], object]] = {
    "item": lambda curve: curve[1],
    "in": lambda curve: 1 in curve,
    "len": len,
    "iter": list,
    "keys": lambda curve: max(curve.keys()),
    "items": lambda curve: curve.items(),
    "values": lambda curve: curve.values(),
    "equal": lambda curve: curve == {},
    "reflected": lambda curve: dict[int, float]() == curve,
    "repr": repr,
    "pickle": pickle.dumps,
    "copied": lambda curve: len(copy.deepcopy(curve)),
}


class Fetch:
    """Notes whose curves were fetched; fails as often as it is told to."""

    def __init__(self, *, n_failures: int = 0) -> None:
        self.fetched: list[list[int]] = []
        self._n_failures = n_failures

    def __call__(self, trial_ids: Collection[int]) -> Mapping[int, Curve]:
        self.fetched.append(list(trial_ids))
        if len(self.fetched) <= self._n_failures:
            raise ConnectionError("the server went away")
        return {each: Curve.of({1: each / 2, 2: math.nan}) for each in trial_ids if each != 9}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_the_first_look_at_one_fetches_the_batch_once(look: Callable[[Curve], object]) -> None:
    fetch = Fetch()
    curves = dict(Batch([7, 8, 9], fetch).curves())
    copies = copy.deepcopy(curves)
    assert fetch.fetched == []
    look(curves[7])
    assert fetch.fetched == [[7, 8, 9]]
    assert curves == copies == {7: {1: 3.5, 2: math.nan}, 8: {1: 4.0, 2: math.nan}, 9: {}}
    assert fetch.fetched == [[7, 8, 9]]


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_a_failed_look_tells_why_and_the_next_one_tries_again(
    look: Callable[[Curve], object],
) -> None:
    fetch = Fetch(n_failures=2)
    curves = dict(Batch([7, 8], fetch).curves())
    for _ in range(2):
        with pytest.raises(ConnectionError, match="the server went away"):
            look(curves[7])
    look(curves[8])
    assert curves[7][1] == 3.5
    assert len(fetch.fetched) == 3


def test_curves_read_ahead_are_fetched_without_the_rest_of_their_batches() -> None:
    fetch = Fetch()
    one, other = (dict(Batch(ids, fetch).curves()) for ids in ([5, 6, 7], [8, 9]))
    read_ahead([one[5], one[7], other[9], {1: 0.5}, Curve.of({}), one[5]])
    assert sorted(map(sorted, fetch.fetched)) == [[5, 7], [9]]
    read_ahead([one[5], one[7], other[9]])
    assert (one[7][1], other[9]) == (3.5, {})
    assert len(fetch.fetched) == 2
    assert (one[6][1], other[8][1]) == (3.0, 4.0)
    assert fetch.fetched[2:] == [[6], [8]]


def test_read_ahead_that_failed_is_tried_again() -> None:
    fetch = Fetch(n_failures=1)
    curves = dict(Batch([7, 8], fetch).curves())
    with pytest.raises(ConnectionError):
        read_ahead([curves[7]])
    read_ahead([curves[7]])
    assert curves[8][1] == 4.0
    assert fetch.fetched == [[7], [7], [8]]
