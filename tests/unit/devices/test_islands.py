"""From single facts about GPUs to islands and cores."""

from __future__ import annotations

from itertools import combinations, permutations

import pytest

from tuner.devices.nvidia.islands import nearest_cores, number_islands, numbers_in_mask


@pytest.mark.parametrize(
    ("links", "expected"),
    [
        pytest.param([], {}, id="none"),
        pytest.param([(0, 1), (2, 3)], {0: 0, 1: 0, 2: 1, 3: 1}, id="bridges"),
        pytest.param([(4, 5), (1, 3)], {1: 0, 3: 0, 4: 1, 5: 1}, id="gaps"),
        pytest.param([(0, 1), (2, 3), (3, 1)], {0: 0, 1: 0, 2: 0, 3: 0}, id="over others"),
        pytest.param(list(combinations(range(8), 2)), dict.fromkeys(range(8), 0), id="NVSwitch"),
    ],
)
def test_linked_gpus_are_one_island(links, expected):
    assert number_islands(links) == expected


def test_island_numbers_do_not_depend_on_the_order_of_links():
    links = [(6, 7), (0, 3), (3, 2), (5, 4)]
    expected = {0: 0, 2: 0, 3: 0, 4: 1, 5: 1, 6: 2, 7: 2}
    assert all(number_islands(order) == expected for order in permutations(links))


@pytest.mark.parametrize(
    ("words", "expected"),
    [((), ()), ((0, 0), ()), ((0b1011,), (0, 1, 3)), ((1 << 63, 0b11), (63, 64, 65))],
)
def test_numbers_in_mask(words, expected):
    assert numbers_in_mask(words) == expected


@pytest.mark.parametrize(
    ("near", "expected"),
    [
        pytest.param((9, 2, 3), (2, 3), id="those that may be used"),
        pytest.param((0, 1, 2, 3, 4, 5), (), id="all are near"),
        pytest.param((8, 9), (), id="none may be used"),
        pytest.param((), (), id="not known"),
    ],
)
def test_nearest_cores(near, expected):
    assert nearest_cores(near, frozenset({0, 1, 2, 3})) == expected
