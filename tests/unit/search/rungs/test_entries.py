"""Losses in arrays are what sorted lists and dicts of them would be."""

import math
from bisect import bisect_left, insort

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.search.rungs.entries import Entries, RungLosses

_LOSSES = st.one_of(st.sampled_from([0.0, 1.0, -1.0, math.inf]), st.floats(allow_nan=False))


@given(st.lists(_LOSSES, max_size=40), st.data())
def test_entries_are_a_sorted_list_of_pairs(losses: list[float], data: st.DataObject) -> None:
    entries, expected = Entries(), list[tuple[float, int]]()
    numbers = data.draw(st.permutations(range(len(losses))))
    for number, loss in zip(numbers, losses, strict=True):
        entries.add((loss, number))
        insort(expected, (loss, number))
    assert list(entries) == expected == entries[:]
    assert len(entries) == len(expected)
    for at, entry in enumerate(expected):
        assert entries[at] == entry
        assert entries.place_of(entry) == at == bisect_left(expected, entry)
        assert entries.n_better(entry[0]) == sum(loss < entry[0] for loss in losses)
        assert entries.n_equal(entry[0]) == losses.count(entry[0])
    assert entries.n_equal(0.5) == losses.count(0.5)
    assert entries.worst == max((each for each in losses if each < math.inf), default=math.inf)
    for entry in list(expected[::2]):
        entries.remove(entry)
        expected.remove(entry)
    assert list(entries) == expected


@given(st.lists(st.tuples(st.integers(0, 30), _LOSSES), max_size=60))
def test_losses_by_rung_are_a_dict_of_tuples(came: list[tuple[int, float]]) -> None:
    losses, expected = RungLosses(), dict[int, tuple[float, ...]]()
    for number, loss in came:
        losses.add(number, loss)
        expected[number] = (*expected.get(number, ()), loss)
    assert dict(losses) == expected
    assert len(losses) == len(expected)
    assert losses.n_losses == len(came)
    for number in range(32):
        assert losses.n_rungs(number) == len(expected.get(number, ()))
        assert (number in losses) == (number in expected)
    for number, each in expected.items():
        assert [losses.at(number, rung) for rung in range(len(each))] == list(each)


def test_trial_that_came_nowhere_has_no_losses() -> None:
    with pytest.raises(KeyError):
        RungLosses()[3]
