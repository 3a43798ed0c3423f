"""Which trials are trained on to check the order at the rungs, and how far."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from tests.unit.search.rungs.order.test_check import train
from tuner.search.rungs.order.check import OrderCheck


def weak(check: OrderCheck, number: int, step_s: float | None = None) -> bool:
    """A trial comes to the first rung; whether it trains on although the rung would end it."""
    check.come(number, [float(number)], step_s=step_s)
    if check.take_witness(number, 0):
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


def test_witnesses_are_of_the_first_trials_of_ten_and_of_a_hundred() -> None:
    check, witnesses = side_by_side(), []
    for number in range(4, 300):
        if weak(check, number):
            witnesses.append(number)
            check.end(number, [float(number)], float(number))
    assert witnesses == [4, 9, 99]


def test_there_are_three_once_a_trial_has_relapsed_and_then_one_of_a_thousand() -> None:
    check, witnesses = side_by_side(RELAPSED), []
    for number in range(4, 1100):
        if weak(check, number):
            witnesses.append(number)
            check.end(number, [float(number)], float(number))
    assert witnesses == [4, 5, 6, 999]


def witnesses_of(check: OrderCheck, numbers: range, n_running: int) -> list[int]:
    """Trials at the first rung, each slower than the one before, that are trained on."""
    found = []
    for number in numbers:
        check.come(number, [float(number)], step_s=float(number))
        if check.take_witness(number, 0, n_running=n_running):
            found.append(number)
        else:
            check.leave(number)
    return found


@pytest.mark.parametrize(
    ("n_running", "first"),
    [
        (7, [4]),
        (8, [4]),
        (16, [4, 5]),
        (32, [4, 5, 6, 7]),  # The next one of ten is none of the quick ones.
    ],
)
def test_where_many_train_at_the_same_time_one_of_eight_is_a_first_witness(
    n_running: int, first: Sequence[int]
) -> None:
    check = side_by_side()
    assert witnesses_of(check, range(4, 32), n_running) == first


@pytest.mark.parametrize(("n_running", "is_to_end"), [(7, False), (8, True), (32, True)])
def test_first_witnesses_are_trained_to_their_end(n_running: int, is_to_end: bool) -> None:
    check = side_by_side()
    check.come(20, [20.0])
    assert check.take_witness(20, 0, n_running=n_running)
    check.come(20, [20.0, 20.0])
    # Fewer train now: what was begun is finished.
    assert check.take_witness(20, 1, n_running=1) == is_to_end


def test_first_witnesses_of_another_start_are_trained_to_their_end() -> None:
    check = side_by_side()
    check.come(20, [20.0, 20.0], is_stored=True)
    check.add_witness(20, 0)
    assert check.take_witness(20, 1, n_running=32)


def test_a_study_that_gets_more_devices_later_has_as_many_as_it_would_have_had() -> None:
    check = side_by_side()
    assert witnesses_of(check, range(4, 14), 4) == [4]
    assert witnesses_of(check, range(14, 40), 24) == [14, 15]


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


def test_it_may_relapse_at_the_next_rung() -> None:
    check = side_by_side()
    for number in range(4):
        check.come(number, [float(number), 9.0 - number])
    assert [weak(check, number) for number in range(4, 8)] == [True] * 3 + [False]


@pytest.mark.parametrize(("end", "has_relapsed"), [(-7.5, True), (-8.5, False), (1.1, True)])
def test_it_is_compared_with_every_rung_that_it_passed(end: float, has_relapsed: bool) -> None:
    check = side_by_side()
    for number in range(4):
        check.come(number, [float(number), -9.0 + number])
    check.end(0, [0.0, -9.0], end)
    n_witnesses = sum(weak(check, number) for number in range(4, 8))
    assert n_witnesses == (3 if has_relapsed else 1)


def test_where_few_have_reached_its_last_rung_an_earlier_one_tells() -> None:
    check = side_by_side()
    check.come(0, [0.0, -1.0])
    check.end(0, [0.0, -1.0], 1.1)
    assert sum(weak(check, number) for number in range(4, 8)) == 3


@pytest.mark.parametrize(("n_relapsed", "tells"), [(1, False), (2, False), (3, True)])
def test_a_third_of_those_that_come_so_far_must_have_relapsed(n_relapsed: int, tells: bool) -> None:
    """One leader of many that becomes worse says nothing of the ranking."""
    check = OrderCheck()
    for number in range(9):
        check.come(number, [float(number)])
        check.pass_halfway(number, [float(number)], -1.0)
    for number in range(9):
        check.end(number, [float(number)], 99.0 if number < n_relapsed else -1.0)
    assert sum(weak(check, number) for number in range(9, 15)) == (3 if tells else 2)


def test_those_that_have_not_come_so_far_do_not_count() -> None:
    """A ranking that is reversed until late holds until then."""
    check = OrderCheck()
    for number in range(9):
        check.come(number, [float(number)])
        check.pass_halfway(number, [float(number)], -1.0)
    check.end(0, [0.0], 99.0)
    assert sum(weak(check, number) for number in range(9, 15)) == 3


def test_what_another_dispatcher_has_seen_counts_once() -> None:
    """One of three has relapsed between the first rungs."""
    check = OrderCheck()
    for number in range(6):
        check.come(number, [float(number)])
    check.learn_relapses(2, [0.5])
    for number in range(3):
        check.come(number, [float(number), -1.0], is_stored=True)
    assert sum(weak(check, number) for number in range(6, 12)) == 3


def test_what_witnesses_do_is_no_relapse() -> None:
    check = OrderCheck()
    assert weak(check, 0)
    for number in range(1, 4):
        assert not weak(check, number)
    check.end(0, [0.0], 99.0)
    assert not weak(check, 4)


def test_three_trials_are_too_few_to_see_a_relapse() -> None:
    check = OrderCheck()
    for number in range(3):
        check.come(number, [float(number)])
    check.pass_halfway(0, [0.0], 9.0)
    assert [weak(check, number) for number in range(3, 6)] == [True] + [False] * 2


def test_there_are_three_in_all_where_a_trial_relapses_late() -> None:
    check = side_by_side()
    assert [number for number in range(4, 12) if weak(check, number)] == [4, 9]
    check.end(0, [0.0], 6.5)
    assert [number for number in range(12, 100) if weak(check, number)] == [12]


def test_a_slow_witness_holds_up_no_other() -> None:
    check = OrderCheck()
    assert [number for number in range(100) if weak(check, number)] == [0, 9, 99]


def test_a_witness_counts_once_however_many_rungs_it_reaches() -> None:
    check = OrderCheck()
    assert [weak(check, number) for number in range(9)] == [True] + [False] * 8
    check.come(9, [9.0])
    check.come(0, [0.0, 0.0])
    assert not check.take_witness(0, 1)
    assert check.take_witness(9, 0), "another one of ten"


@pytest.mark.parametrize("n_late", [1, 2, 5])
def test_trials_whose_processes_end_late_change_nothing(n_late: int) -> None:
    check, ending, witnesses = OrderCheck(), [], []
    for number in range(1200):
        check.come(number, [float(number)], step_s=1.0)
        if check.take_witness(number, 0):
            witnesses.append(number)
        else:
            ending.append(number)
        if len(ending) > n_late:
            check.leave(ending.pop(0))
    assert witnesses == [0, 9, 99, 999]


def test_a_witness_that_another_dispatcher_names_as_well_counts_once() -> None:
    check = OrderCheck()
    assert weak(check, 0)
    check.add_witness(0, 0)
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
        if check.take_witness(number, 0):
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
    assert slow.take_witness(1, 0)
    assert quick.take_witness(1, 0)


def test_the_time_at_its_first_rung_is_that_of_a_trial() -> None:
    check = OrderCheck()
    for number, step_s in enumerate((1.0, 3.0, 2.0, 4.0)):
        check.come(number, [float(number)], step_s=step_s)
    check.come(1, [1.0, 1.0], step_s=0.1)
    assert not check.take_witness(1, 0), "a start counts less the longer a trial trains"
    assert check.take_witness(0, 0)


def test_trials_that_are_equally_quick_may_all_be_witnesses() -> None:
    check = OrderCheck()
    for number in range(5):
        check.come(number, [float(number)], step_s=2.0)
    check.pass_halfway(0, [0.0], RELAPSED)
    assert [check.take_witness(number, 0) for number in range(5)] == [True] * 3 + [False] * 2


CONTRADICTED = ((1.0, -7.0), (0.5, -6.8), (0.7, -6.0), (0.6, -6.9))
"""Losses at the first rung and at the end: they speak against the rung, but do not open it."""


# -- how far ------------------------------------------------------------------------------------


def reach(check: OrderCheck, weak_at: int, rung: int) -> bool:
    """A trial is weak at a rung and at all later ones; whether it trains on at the last of them."""
    for each in range(rung + 1):
        check.come(0, [0.0] * (each + 1))
        if each >= weak_at and not check.take_witness(0, each):
            assert each == rung
            return False
    return True


@pytest.mark.parametrize("weak_at", [0, 1, 3])
def test_a_witness_is_trained_to_the_next_rung(weak_at: int) -> None:
    assert reach(OrderCheck(), weak_at, weak_at)
    assert not reach(OrderCheck(), weak_at, weak_at + 1)


def test_it_is_trained_to_its_end_once_a_trial_has_relapsed() -> None:
    check = OrderCheck()
    assert weak(check, 0)
    for number in range(1, 4):
        check.come(number, [float(number)])
    check.pass_halfway(1, [1.0], 9.0)
    assert all(check.take_witness(0, rung) for rung in range(1, 6))


def test_it_is_trained_to_its_end_while_the_evidence_speaks_against_a_rung() -> None:
    check = OrderCheck()
    assert weak(check, 9)
    for number, (early, end) in enumerate(CONTRADICTED):
        train(check, number, [early, end])
    assert not check.open_rungs
    assert all(check.take_witness(9, rung) for rung in range(1, 6))


@pytest.mark.parametrize(("later", "then"), [(0.0, [9, 99]), (math.inf, [1, 9, 99])])
def test_a_witness_that_left_is_replaced_if_it_was_not_compared_later(
    later: float, then: list[int]
) -> None:
    """What diverges is in no ranking."""
    check = OrderCheck()
    assert weak(check, 0)
    check.come(0, [0.0, later])
    check.leave(0)
    assert [number for number in range(1, 100) if weak(check, number)] == then


def test_where_it_was_weak_itself_tells_nothing() -> None:
    """A later start learns first that it was a witness, and then its rungs."""
    check = OrderCheck()
    check.add_witness(0, 1)
    check.come(0, [0.0], is_stored=True)
    check.come(0, [0.0, 0.0], is_stored=True)
    check.leave(0)
    assert weak(check, 1), "it failed before the third rung"


def test_a_witness_that_is_resumed_and_weak_again_is_none() -> None:
    check = OrderCheck()
    assert weak(check, 0)
    check.come(0, [0.0, 0.0])
    check.leave(0)
    for number in range(1, 20):
        check.come(number, [1.0])
    assert not check.take_witness(0, 2)
    assert check.take_witness(19, 0)


def test_once_trained_to_its_end_it_is_whatever_others_do() -> None:
    check = side_by_side()
    assert weak(check, 4)
    check.pass_halfway(1, [1.0], 9.0)
    assert check.take_witness(4, 1), "one of two has relapsed"
    for number in (2, 3):
        check.pass_halfway(number, [float(number)], -1.0)
    for number in range(5, 8):
        check.come(number, [float(number)])
        check.pass_halfway(number, [float(number)], -1.0)
    assert not weak(check, 8), "one of seven has"
    assert check.take_witness(4, 2)


@pytest.mark.parametrize("n_before", [0, 3])
def test_those_that_were_not_compared_with_enough_others_do_not_count(n_before: int) -> None:
    check = OrderCheck()
    for number in range(4):
        check.come(number, [float(number)])
        if number < n_before:
            check.pass_halfway(number, [float(number)], 9.0)
    check.pass_halfway(3 if n_before else 0, [0.0], 1.5)
    assert sum(weak(check, number) for number in range(4, 8)) == 3


def test_those_that_left_before_a_trial_relapsed_are_none_of_the_three() -> None:
    check = side_by_side()
    assert weak(check, 4)
    check.come(4, [4.0, 4.0])
    check.leave(4)
    check.end(0, [0.0], 9.0)
    assert [weak(check, number) for number in range(5, 9)] == [True] * 3 + [False]


@pytest.mark.parametrize(
    ("losses", "has_more"),
    [
        (CONTRADICTED, True),
        (((1.0, -6.0), (0.5, -8.0), (0.7, -7.0), (0.6, -7.5)), False),
    ],
)
def test_there_are_more_while_the_evidence_speaks_against_a_rung(
    losses: Sequence[tuple[float, float]], has_more: bool
) -> None:
    check = OrderCheck()
    assert weak(check, 0)
    check.end(0, [0.0], math.inf)
    for number, (early, end) in enumerate(losses, start=1):
        train(check, number, [early, end])
    assert not check.open_rungs, "more discordant pairs are wanted for that"
    assert [check.take_witness(number, 0) for number in (5, 6, 7)] == [has_more, has_more, False]
