"""Which trials are trained to their end to check the order at the rungs."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from tests.unit.search.rungs.test_order_check import train
from tuner.search.rungs.order_check import OrderCheck


def weak(check: OrderCheck, number: int, step_s: float | None = None) -> bool:
    """A trial comes to the first rung; whether it trains on although the rung would end it."""
    check.come(number, [float(number)], step_s=step_s)
    if check.take_witness(number):
        return True
    check.leave(number)
    return False


def side_by_side(later: float = 0.0) -> OrderCheck:
    """Trials 0 to 3 have passed the first rung; halfway to the next, trial 0 has this loss."""
    check = OrderCheck()
    for number in range(4):
        check.come(number, [float(number)])
    check.pass_halfway(0, [0.0], later)
    return check


RELAPSED = 1.5
"""Two of the four trials at the rung were better than this."""


@pytest.mark.parametrize(("later", "first"), [(0.0, [4]), (RELAPSED, [4, 5, 6])])
def test_witnesses_are_of_the_first_trials_of_ten_and_of_a_hundred(
    later: float, first: list[int]
) -> None:
    """One of the first, or three once a trial has relapsed."""
    check, witnesses = side_by_side(later), []
    for number in range(4, 300):
        if weak(check, number):
            witnesses.append(number)
            check.end(number, [float(number)], float(number))
    assert [each for each in witnesses if each < 9] == first
    assert len(witnesses) == len(first) + 2
    assert witnesses[-2] in (9, 10)
    assert witnesses[-1] in (99, 100)


@pytest.mark.parametrize(
    ("early", "later", "has_relapsed"),
    [
        (0.0, 1.0, False),  # Itself alone is better now: a quarter.
        (0.0, 1.1, True),
        (0.0, -1.0, False),
        (1.0, 2.1, True),
        (2.0, 3.1, True),
        (2.0, 2.9, False),
        (3.0, 99.0, False),  # The worst cannot become worse.
        (0.0, math.inf, False),  # A NaN value says nothing of the ranking.
    ],
)
def test_a_trial_has_relapsed_if_it_is_worse_by_a_third_of_those_at_the_rung(
    early: float, later: float, has_relapsed: bool
) -> None:
    check = side_by_side()
    check.end(int(early), [early], later)
    n_witnesses = sum(weak(check, number) for number in range(4, 8))
    assert n_witnesses == (3 if has_relapsed else 1)


def test_it_may_relapse_at_the_next_rung_and_is_compared_with_the_rung_it_passed_last() -> None:
    check = side_by_side()
    for number in range(4):
        check.come(number, [float(number), 9.0 - number])
    assert [weak(check, number) for number in range(4, 8)] == [True] * 3 + [False]
    check = side_by_side()
    for number in range(4):
        check.come(number, [float(number), -9.0 + number])
    check.end(0, [0.0, -9.0], -7.5)
    assert [weak(check, number) for number in range(4, 8)] == [True] * 3 + [False]


def test_three_trials_are_too_few_to_see_a_relapse() -> None:
    check = OrderCheck()
    for number in range(3):
        check.come(number, [float(number)])
    check.pass_halfway(0, [0.0], 9.0)
    assert [weak(check, number) for number in range(3, 6)] == [True] + [False] * 2


def test_there_are_two_more_where_a_trial_relapses_late() -> None:
    check = side_by_side()
    assert [number for number in range(4, 12) if weak(check, number)] == [4, 9]
    check.end(0, [0.0], 6.5)
    assert [number for number in range(12, 100) if weak(check, number)] == [12, 13, 99]


def test_a_slow_witness_holds_up_no_other() -> None:
    check = OrderCheck()
    assert [number for number in range(100) if weak(check, number)] == [0, 9, 99]


def test_a_witness_counts_once_however_many_rungs_it_reaches() -> None:
    check = OrderCheck()
    assert [weak(check, number) for number in range(9)] == [True] + [False] * 8
    check.come(9, [9.0])
    check.come(0, [0.0, 0.0])
    assert check.take_witness(0)
    assert check.take_witness(9), "another one of ten"


@pytest.mark.parametrize("n_late", [1, 2, 5])
def test_trials_whose_processes_end_late_change_nothing(n_late: int) -> None:
    check, ending, witnesses = OrderCheck(), [], []
    for number in range(1200):
        check.come(number, [float(number)], step_s=1.0)
        if check.take_witness(number):
            witnesses.append(number)
        else:
            ending.append(number)
        if len(ending) > n_late:
            check.leave(ending.pop(0))
    assert witnesses == [0, 9, 99, 999]


def test_a_witness_that_another_dispatcher_names_as_well_counts_once() -> None:
    check = OrderCheck()
    assert weak(check, 0)
    check.add_witness(0)
    check.leave(0)
    assert weak(check, 1)


def test_a_witness_that_fails_is_replaced() -> None:
    check = OrderCheck()
    assert [weak(check, number) for number in range(3)] == [True, False, False]
    check.leave(0)
    assert [weak(check, number) for number in range(3, 5)] == [True, False]
    check.leave(1)
    assert not weak(check, 5), "trial 1 was none"


@pytest.mark.parametrize("seed", range(5))
def test_witnesses_are_among_the_quickest_quarter_of_the_newest(seed: int) -> None:
    rng, check = random.Random(seed), OrderCheck()
    came: list[float] = []
    witnesses = {}
    for number in range(400):
        came.append(rng.lognormvariate(0, 1))
        check.come(number, [float(number)], step_s=came[-1])
        if check.take_witness(number):
            witnesses[number] = came[-1]
    assert len(witnesses) == 3
    for number, step_s in witnesses.items():
        newest = came[max(0, number - 99) : number + 1]
        assert sum(each < step_s for each in newest) <= len(newest) / 4


def test_where_one_trial_trains_after_the_other_times_are_not_compared() -> None:
    """A study with a seed on one device repeats, however busy the machine is."""
    slow, quick = OrderCheck(), OrderCheck()
    for check, times in ((slow, (1.0, 9.0)), (quick, (9.0, 1.0))):
        check.come(0, [0.0], step_s=times[0])
        check.end(0, [0.0], 0.0)
        check.come(1, [1.0], step_s=times[1])
    assert slow.take_witness(1)
    assert quick.take_witness(1)


def test_the_time_at_its_first_rung_is_that_of_a_trial() -> None:
    check = OrderCheck()
    for number, step_s in enumerate((1.0, 3.0, 2.0, 4.0)):
        check.come(number, [float(number)], step_s=step_s)
    check.come(1, [1.0, 1.0], step_s=0.1)
    assert not check.take_witness(1), "a start counts less the longer a trial trains"
    assert check.take_witness(0)


def test_trials_that_are_equally_quick_may_all_be_witnesses() -> None:
    check = OrderCheck()
    for number in range(5):
        check.come(number, [float(number)], step_s=2.0)
    check.pass_halfway(0, [0.0], RELAPSED)
    assert [check.take_witness(number) for number in range(5)] == [True] * 3 + [False] * 2


def test_a_witness_stays_one_at_each_rung() -> None:
    check = OrderCheck()
    assert weak(check, 0)
    check.come(0, [0.0, 0.0])
    assert check.take_witness(0)


@pytest.mark.parametrize(
    ("ends", "has_more"), [((-7.0, -6.8, -6.0, -6.9), True), ((-6.0, -8.0, -7.0, -7.5), False)]
)
def test_there_are_more_while_the_evidence_speaks_against_a_rung(
    ends: Sequence[float], has_more: bool
) -> None:
    check = OrderCheck()
    assert weak(check, 0)
    check.end(0, [0.0], math.inf)
    for number, (early, end) in enumerate(zip((1.0, 0.5, 0.7, 0.6), ends, strict=True), start=1):
        train(check, number, [early, end])
    assert not check.open_rungs, "more discordant pairs are wanted for that"
    assert [check.take_witness(number) for number in (5, 6, 7)] == [has_more, has_more, False]
