"""Which trials are trained to their end to check the order at the rungs."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from tests.unit.search.rungs.test_order_check import train
from tuner.search.rungs.order_check import OrderCheck
from tuner.search.rungs.witnesses import Witnesses


def weak(check: OrderCheck, number: int, step_s: float | None = None) -> bool:
    """A trial comes to the first rung; whether it trains on although the rung would end it."""
    check.come(number, [float(number)], step_s=step_s)
    if check.take_witness(number):
        return True
    check.leave(number)
    return False


def side_by_side(later: float = 0.0) -> OrderCheck:
    """Of four trials the best has passed the first rung, and has this loss halfway to the next."""
    check = OrderCheck()
    come(check, 4)
    check.pass_halfway(0, [0.0], later)
    return check


def come(check: OrderCheck, n: int) -> None:
    """So many trials come to the first rung side by side, and all but the best leave."""
    for number in range(n):
        check.come(number, [float(number)])
    for number in range(1, n):
        check.leave(number)


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
    come(check, 3)
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
        if weak(check, number, came[-1]):
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
    check = side_by_side(RELAPSED)
    assert [weak(check, number, 2.0) for number in range(4, 9)] == [True] * 3 + [False] * 2


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
    check = contradicted(ends)
    assert [check.take_witness(number) for number in (5, 6, 7)] == [has_more, has_more, False]


def contradicted(ends: Sequence[float]) -> OrderCheck:
    """A witness whose end is unknown, and four trials that end so."""
    check = OrderCheck()
    assert weak(check, 0)
    check.end(0, [0.0], math.inf)
    for number, (early, end) in enumerate(zip((1.0, 0.5, 0.7, 0.6), ends, strict=True), start=1):
        train(check, number, [early, end])
    assert not check.open_rungs, "more discordant pairs are wanted for that"
    return check


# -- weak trials that passed as one of the first -----------------------------------------------


def passes_first(loss: float, step_s: float = 1.0, *, completes: bool) -> OrderCheck:
    """Trial 0 passes the first rung as the first; trial 1 is better."""
    check = OrderCheck()
    check.come(0, [loss], step_s=step_s)
    if completes:
        check.end(0, [loss], loss)
    check.come(1, [-1.0], step_s=2.0)
    return check


def own_witnesses(check: OrderCheck, first: int, end: int = 200) -> list[int]:
    return [number for number in range(first, end) if weak(check, number)]


@pytest.mark.parametrize("completes", [False, True])
def test_a_weak_trial_that_passed_as_one_of_the_first_is_a_witness(completes: bool) -> None:
    """It takes the place of the first one; of ten trials and of a hundred there are others."""
    check = passes_first(999.0, completes=completes)
    assert own_witnesses(check, 2) == [9, 99]
    assert check.n_adopted == 1


@pytest.mark.parametrize("completes", [False, True])
def test_one_that_is_in_the_better_half_is_none(completes: bool) -> None:
    check = passes_first(-0.5, completes=completes)
    assert own_witnesses(check, 2) == [2, 9, 99]
    assert check.n_adopted == 0


@pytest.mark.parametrize(("others", "is_adopted"), [((-1.0, 9.0), False), ((-1.0, -2.0), True)])
def test_the_worse_half_begins_in_the_middle(others: Sequence[float], is_adopted: bool) -> None:
    """Of four trials, two are better or one is."""
    witnesses = Witnesses()
    witnesses.begin(0, 5.0, 1.0)
    for number, loss in enumerate(others, start=1):
        witnesses.begin(number, loss, 1.0)
        witnesses.leave(number)
    witnesses.begin(3, 8.0, 1.0)
    assert witnesses.take(3, [5.0, *others, 8.0], -1, wants_more=False) is not is_adopted


def test_two_of_them_take_the_places_of_two_witnesses() -> None:
    check = passes_first(999.0, completes=False)
    check.come(2, [998.0], step_s=1.0)
    assert own_witnesses(check, 3) == [99]


def test_no_more_are_adopted_than_are_missing() -> None:
    check = passes_first(999.0, completes=False)
    for number in (2, 3):
        check.come(number, [990.0 + number], step_s=1.0)
    assert not weak(check, 4)
    assert check.n_adopted == 1


def test_a_slow_one_is_none_until_it_has_completed() -> None:
    for completes in (False, True):
        check = passes_first(999.0, 50.0, completes=completes)
        has_own = [weak(check, number, 1.0) for number in range(2, 6)]
        assert has_own == [not completes, False, False, False]


def test_one_of_another_dispatcher_whose_length_is_unknown_is_none() -> None:
    check = OrderCheck()
    check.come(0, [999.0])
    check.come(1, [-1.0], step_s=2.0)
    assert weak(check, 2, 1.0)


def test_one_that_a_later_rung_would_end_trains_on() -> None:
    check = passes_first(999.0, completes=False)
    assert not weak(check, 2)
    check.come(0, [999.0, 999.0])
    assert check.take_witness(0)
    assert check.n_adopted == 0, "it is trained for this alone now"
    assert own_witnesses(check, 3) == [9, 99]


def test_another_dispatcher_says_that_it_is_trained_for_this_alone() -> None:
    check = passes_first(999.0, completes=False)
    assert not weak(check, 2)
    check.add_witness(0)
    check.leave(0)
    assert weak(check, 3), "it counted once"


def test_one_that_fails_is_replaced() -> None:
    check = passes_first(999.0, completes=False)
    assert not weak(check, 2)
    check.leave(0)
    assert weak(check, 3)


def test_one_that_ends_with_nan_tells_nothing() -> None:
    check = OrderCheck()
    check.come(0, [999.0], step_s=1.0)
    check.end(0, [999.0], math.inf)
    check.come(1, [-1.0], step_s=1.0)
    assert weak(check, 2)


@pytest.mark.parametrize("n_late", [0, 1, 2, 5])
def test_a_trial_that_is_about_to_end_is_none(n_late: int) -> None:
    """A process ends some time after its trial has been told to."""
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


def test_a_trial_with_nan_at_its_first_rung_is_none() -> None:
    check = OrderCheck()
    check.come(0, [math.inf], step_s=1.0)
    check.come(1, [-1.0], step_s=1.0)
    assert weak(check, 2)


def test_trials_whose_pairs_no_longer_count_are_none() -> None:
    """The rung has opened and closed: what had passed it before is compared no more."""
    check = OrderCheck()
    for number, (early, end) in enumerate([(3.0, 0.0), (2.0, 1.0), (1.0, 2.0), (0.0, 3.0)]):
        train(check, number, [early, end])
    assert check.open_rungs == {0}
    check.come(4, [50.0], step_s=1.0)
    assert weak(check, 5), "while it is open none is adopted"
    for number in range(6, 11):
        train(check, number, [-float(number), -float(number)])
    assert not check.open_rungs
    assert weak(check, 11), "the one of ten trials"
    assert check.n_adopted == 0


def test_what_a_completed_one_says_is_no_answer_to_a_contradiction() -> None:
    witnesses = Witnesses()
    for number, loss in enumerate((9.0, 9.0, 1.0)):
        witnesses.begin(number, loss, 1.0)
        witnesses.complete(number, loss)
    witnesses.begin(3, 8.0, 1.0)
    assert not witnesses.take(3, [9.0, 9.0, 1.0, 8.0], -1, wants_more=False)
    assert witnesses.n_adopted == 1
    witnesses.begin(4, 8.0, 1.0)
    assert witnesses.take(4, [9.0, 9.0, 1.0, 8.0, 8.0], -1, wants_more=True)
    assert witnesses.n_adopted == 1


def test_while_the_evidence_speaks_against_a_rung_it_is_one_of_two() -> None:
    check = contradicted((-7.0, -6.8, -6.0, -6.9))
    check.come(5, [5.0], step_s=1.0)
    assert [weak(check, number) for number in (6, 7, 8)] == [True, False, False]


def test_a_later_start_knows_how_many_there_were() -> None:
    check = OrderCheck()
    check.restore_adopted(2)
    check.restore_adopted(1)
    assert own_witnesses(check, 0) == [99]
