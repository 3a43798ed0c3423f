"""What is predicted of attempts that run, by those that have ended."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.devices.allocation.remaining import (
    Running,
    chance_to_end_first,
    may_pass,
    median_until_all_end_s,
)

TEN_TO_200 = tuple(10.0 * n for n in range(1, 21))


def running(age_s: float, lengths_s: tuple[float, ...] = TEN_TO_200) -> Running:
    return Running(age_s=age_s, lengths_s=lengths_s)


def test_remaining_time_is_that_of_ended_attempts_that_were_longer():
    assert running(0).median_left_s == 110
    assert running(95).median_left_s == 150 - 95
    assert running(95).chance_to_end_within(56) == pytest.approx(6 / 11)
    assert running(0).chance_to_end_within(1000) == 1
    assert running(0).chance_to_end_within(10) == 0


def test_attempt_longer_than_nearly_all_is_expected_to_last_as_long_again():
    assert running(150).median_left_s == 150
    assert running(150).chance_to_end_within(150) == 0.5
    assert running(150).chance_to_end_within(0) == 0


def test_the_older_of_two_heavy_tailed_attempts_is_expected_to_last_longer():
    heavy = tuple(2.0**n for n in range(24))
    assert running(100, heavy).median_left_s > running(1, heavy).median_left_s


def test_narrow_trial_may_pass_where_one_has_run_for_long_and_not_where_all_are_about_to_end():
    assert may_pass(TEN_TO_200, [running(190), running(5)])
    equal = (100.0,) * 20
    assert may_pass(equal, [running(0, equal)])
    assert not may_pass(equal, [running(30, equal)])
    assert not may_pass(equal, [running(30, equal), running(60, equal)])


def test_least_chance_decides():
    chance = chance_to_end_first(TEN_TO_200, [running(40)])
    assert 0 < chance < 1
    assert may_pass(TEN_TO_200, [running(40)], least_chance=chance)
    assert not may_pass(TEN_TO_200, [running(40)], least_chance=chance + 0.01)


LENGTHS = st.lists(st.floats(0.01, 1e6), min_size=10, max_size=60).map(sorted)
RUNNING = st.lists(
    st.builds(Running, age_s=st.floats(0, 1e6), lengths_s=LENGTHS), min_size=1, max_size=8
)


@pytest.mark.slow
@given(lengths_s=LENGTHS, some=RUNNING, one=RUNNING)
def test_more_attempts_to_wait_for_never_lower_the_chance(lengths_s, some, one):
    fewer = chance_to_end_first(lengths_s, some)
    assert -1e-9 <= fewer <= chance_to_end_first(lengths_s, [*some, *one]) + 1e-9 <= 1 + 1e-6


@given(some=RUNNING)
def test_all_have_ended_by_the_median_with_even_odds(some):
    left_s = median_until_all_end_s(some)
    odds = 1.0
    for each in some:
        odds *= each.chance_to_end_within(left_s)
    assert left_s == 0 or odds >= 0.5


def test_nothing_to_wait_for_takes_no_time():
    assert median_until_all_end_s([]) == 0
    assert median_until_all_end_s([running(150)]) == pytest.approx(150, rel=0.02)
