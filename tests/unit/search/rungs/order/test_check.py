"""Whether the order at a rung holds later: when rungs open and close, and who is a witness."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from tuner.search.rungs.order.agreement import END, agreement_of
from tuner.search.rungs.order.check import OrderCheck

Loss = Callable[[int], float]


def train(check: OrderCheck, number: int, losses: Sequence[float]) -> None:
    """A trial comes to each rung, and to its end with the last of the losses."""
    for rung in range(len(losses) - 1):
        check.come(number, losses[: rung + 1])
        check.judge()
    check.end(number, losses[:-1], losses[-1])
    check.judge()


# -- agreement ---------------------------------------------------------------------------------


@given(st.permutations(range(8)))
def test_agreement_is_kendalls(order: Sequence[int]) -> None:
    pairs = [(float(place), float(value)) for place, value in enumerate(order)]
    found = agreement_of(pairs)
    tau = kendalltau([a for a, _ in pairs], [b for _, b in pairs]).statistic
    assert (found.n_concordant - found.n_discordant) / 28 == pytest.approx(tau)
    assert found.share == pytest.approx((tau + 1) / 2)


def test_differences_whose_product_is_zero_are_differences() -> None:
    assert agreement_of([(n * 1e-170, n * 1e-170) for n in range(3)]).n_concordant == 3


def test_ties_are_in_no_order() -> None:
    found = agreement_of([(1.0, 1.0), (1.0, 2.0), (2.0, 3.0)])
    assert (found.n_concordant, found.n_discordant, found.share) == (2, 0, 1.0)


def test_one_trial_says_nothing() -> None:
    assert agreement_of([(1.0, 1.0)]).z == 0.0


# -- rungs -------------------------------------------------------------------------------------


def test_a_rung_whose_order_is_reversed_opens() -> None:
    check = OrderCheck()
    for number in range(6):
        train(check, number, [float(number), float(-number)])
    assert check.open_rungs == {0}
    (trust,) = check.trust()
    assert trust.agreement.share == 0.0
    assert trust.later == END


def test_the_rung_that_is_reversed_opens_and_no_other() -> None:
    check = OrderCheck()
    for number in range(6):
        train(check, number, [float(number), float(-number), float(-number)])
    assert check.open_rungs == {0}


def test_it_opens_by_the_next_rung_before_any_trial_ends() -> None:
    check = OrderCheck()
    for number in range(6):
        check.come(number, [float(number)])
        check.come(number, [float(number), float(-number)])
        check.judge()
    assert check.open_rungs == {0}
    assert check.trust()[0].later == 1


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=25, unique=True))
def test_a_rung_whose_order_holds_never_opens(losses: Sequence[float]) -> None:
    check = OrderCheck()
    for number, loss in enumerate(losses):
        train(check, number, [loss, loss, loss])
        assert not check.open_rungs


def test_three_reversed_trials_open_a_rung_and_two_do_not() -> None:
    check = OrderCheck()
    for number in range(2):
        train(check, number, [float(number), float(-number)])
    assert not check.open_rungs
    train(check, 2, [2.0, -2.0])
    assert check.open_rungs == {0}


#: Rankings of six trials without relation: seven pairs of fifteen are in the same order.
UNRELATED = (2.0, 5.0, 0.0, 3.0, 4.0, 1.0)


def test_a_rung_whose_order_says_nothing_of_the_next_opens() -> None:
    check = OrderCheck()
    for number, later in enumerate(UNRELATED):
        assert not check.open_rungs
        check.come(number, [float(number)])
        check.come(number, [float(number), later])
        check.judge()
    assert check.open_rungs == {0}
    assert check.trust()[0].agreement.share == 7 / 15


@pytest.mark.parametrize(("n_running", "n_trials"), [(4, 6), (7, 6), (32, 10)])
def test_where_many_train_at_the_same_time_more_must_say_nothing(
    n_running: int, n_trials: int
) -> None:
    check = OrderCheck()
    for number, later in enumerate((7, 0, 9, 3, 2, 5, 6, 8, 1, 4)[:n_trials]):
        assert not check.open_rungs
        check.come(number, [float(number)])
        check.take_witness(number, 0, n_running=n_running)
        check.come(number, [float(number), float(later)])
        check.judge()
    assert check.open_rungs == {0}


@pytest.mark.parametrize(
    ("losses", "is_open"),
    [
        (range(6), False),  # As a rung selects them: the best fifth.
        (range(0, 30, 5), True),  # As every trial passes an open rung, or with two witnesses.
        ((0, 1, 2, 3, 4, 20), False),
        ((0, 1, 2, 3, 28, 29), True),
    ],
)
def test_trials_that_differ_little_at_a_rung_do_not_open_it_by_their_order(
    losses: Sequence[int], is_open: bool
) -> None:
    check = OrderCheck()
    for number in range(30):
        check.come(number, [float(number)])
    for number, later in zip(losses, UNRELATED, strict=True):
        check.come(number, [float(number), later])
        check.judge()
    assert check.open_rungs == ({0} if is_open else frozenset())


def test_a_rung_where_all_are_equal_opens() -> None:
    check = OrderCheck()
    for number in range(30):
        check.come(number, [1.0])
    for number, later in enumerate(UNRELATED):
        assert not check.open_rungs
        check.come(number, [1.0, later])
        check.judge()
    assert check.open_rungs == {0}


def test_the_last_rung_opens_where_it_says_nothing_of_the_end_and_others_with_it() -> None:
    check = OrderCheck()
    for number, end in enumerate(UNRELATED):
        assert not check.open_rungs
        train(check, number, [float(number), float(number), end])
    assert check.open_rungs == {0, 1}


def test_a_rung_is_compared_with_the_next_that_is_closed() -> None:
    """Rung 1 is contradicted, rung 2 is not: what counts for rung 0 is that it agrees with that."""
    check = OrderCheck()
    for number in range(3):
        train(check, number, [float(number), float(number), float(-number), float(-number)])
    assert check.open_rungs == {0, 1}
    for number in range(3, 8):
        train(check, number, [float(number), float(-number), float(number), float(number)])
    assert check.open_rungs == {1}, "rung 0 has closed"
    for number in range(8, 20):
        loss = float(number * 7 % 20)
        train(check, number, [loss, -loss, loss, loss])
        assert check.open_rungs == {1}


def test_rungs_before_one_that_is_contradicted_open_with_it() -> None:
    """Their rankings agree with each other, and none with the end."""
    check = OrderCheck()
    for number in range(12):
        check.come(number, [float(number)])
        check.come(number, [float(number), float(number)])
        check.judge()
    assert not check.open_rungs
    for number in range(3):
        check.come(number, [float(number)] * 3)
        check.end(number, [float(number)] * 3, float(-number))
        check.judge()
    assert check.open_rungs == {0, 1, 2}


def test_it_opens_by_the_losses_halfway_to_the_end() -> None:
    check = OrderCheck()
    for number in range(3):
        check.come(number, [float(number)])
        assert not check.open_rungs
        assert check.pass_halfway(number, [float(number)], float(-number))
        check.judge()
    (trust,) = check.trust()
    assert trust.is_open
    assert trust.later == 0.5


def test_halfway_counts_once_after_each_rung() -> None:
    check = OrderCheck()
    check.come(0, [1.0])
    assert check.pass_halfway(0, [1.0], 2.0)
    assert not check.pass_halfway(0, [1.0], 3.0)
    check.come(0, [1.0, 4.0])
    assert check.pass_halfway(0, [1.0, 4.0], 5.0)
    check.leave(0)
    assert check.pass_halfway(0, [1.0, 4.0], 5.0), "another attempt"


def test_it_closes_by_trials_that_came_while_it_was_open() -> None:
    check = OrderCheck()
    for number in range(3):
        train(check, number, [float(number), float(-number)])
    for number in range(3, 7):
        assert check.open_rungs == {0}
        train(check, number, [float(number), float(number)])
    assert check.open_rungs == {0}, "four trials are too few"
    train(check, 7, [7.0, 7.0])
    assert not check.open_rungs


def test_a_rung_does_not_close_while_the_order_halfway_contradicts_it() -> None:
    check = OrderCheck()
    for number in range(3):
        train(check, number, [float(number), float(-number)])
    for number in range(3, 8):
        check.come(number, [float(number)])
        check.pass_halfway(number, [float(number)], float(-number))
        check.end(number, [float(number)], float(number))
        check.judge()
    assert check.open_rungs == {0}


def test_trials_that_came_before_it_opened_do_not_close_it() -> None:
    check = OrderCheck()
    for number in range(10, 16):
        check.come(number, [float(number)])
    for number in range(6):
        train(check, number, [float(number), float(-number)])
    for number in range(10, 16):
        check.end(number, [float(number)], float(number))
        check.judge()
    assert check.open_rungs == {0}


def doubted() -> OrderCheck:
    """Six trials have opened rung 0, as it says nothing of rung 1."""
    check = OrderCheck()
    for number, later in enumerate(UNRELATED):
        check.come(number, [float(number)])
        check.come(number, [float(number), later])
        check.judge()
    assert check.open_rungs == {0}
    return check


def come_further(check: OrderCheck, losses: Sequence[float], later: Sequence[float]) -> bool:
    """More trials come to rungs 0 and 1; whether rung 0 has closed after the last of them."""
    for number, pair in enumerate(zip(losses, later, strict=True), start=6):
        assert check.open_rungs == {0}
        check.come(number, pair[:1])
        check.come(number, pair)
        check.judge()
    return not check.open_rungs


@pytest.mark.parametrize(
    ("later", "closes"),
    [
        ((0.0, 1.0, 2.0, 3.0, 4.0, 5.0), True),
        ((0.0, 1.0, 2.0, 3.0, 5.0, 4.0), True),
        ((0.0, 1.0, 2.0, 5.0, 4.0, 3.0), False),  # 12 of 15 pairs: one in 15 of unrelated ones.
        (UNRELATED, False),
    ],
)
def test_it_closes_by_the_next_rung_before_any_trial_ends(
    later: Sequence[float], closes: bool
) -> None:
    assert come_further(doubted(), range(6), later) == closes


def test_another_check_closes_it_by_the_next_rung_too() -> None:
    other = OrderCheck()
    other.restore(doubted().trust())
    assert come_further(other, range(6), range(6))


def test_five_trials_do_not_close_it_by_the_next_rung() -> None:
    assert not come_further(doubted(), range(5), range(5))


def test_it_does_not_close_by_the_next_rung_while_three_trials_contradict_it() -> None:
    check = doubted()
    for number in range(20, 23):
        check.come(number, [float(number)])
        check.pass_halfway(number, [float(number)], float(-number))
    assert not come_further(check, range(6), range(6))


def test_it_does_not_close_by_a_rung_that_is_open() -> None:
    """Rungs 0 and 1 agree with each other, and too few trials have ended since they opened."""
    check = OrderCheck()
    for number in range(3):
        train(check, number, [float(number), float(number), float(-number)])
    for number in range(3, 7):
        train(check, number, [float(number)] * 3)
    assert check.open_rungs == {0, 1}
    for number in range(7, 30):
        check.come(number, [float(number)])
        check.come(number, [float(number), float(number)])
        check.judge()
    assert check.open_rungs == {0, 1}


def test_values_that_are_not_finite_say_nothing() -> None:
    check = OrderCheck()
    for number in range(8):
        train(check, number, [float(number), float("inf")])
    assert not check.open_rungs
    assert check.trust()[0].agreement.n_trials == 0


@pytest.mark.parametrize("seed", range(5))
def test_orders_without_relation_do_not_stay_open_by_much_evidence_for_them(seed: int) -> None:
    """Half-right orders, tau 0.5: whatever opened by chance has closed after a hundred trials."""
    rng, check = random.Random(seed), OrderCheck()
    for number in range(100):
        quality = rng.gauss(0, 1)
        train(check, number, [quality + rng.gauss(0, 0.5), quality])
    assert not check.open_rungs


# -- what others found -------------------------------------------------------------------------


def test_another_check_takes_over_what_is_open() -> None:
    one, other = OrderCheck(), OrderCheck()
    for number in range(6):
        train(one, number, [float(number), float(-number)])
    other.restore(one.trust())
    assert other.open_rungs == {0}
    assert other.trust() == one.trust()
    for number in range(6, 11):
        train(other, number, [float(number), float(number)])
    assert not other.open_rungs


# -- what agrees so far ------------------------------------------------------------------------


def halfway(losses: Sequence[float]) -> OrderCheck:
    """As many trials as there are losses halfway came to the first rung, the best first."""
    check = OrderCheck()
    for number in range(len(losses)):
        check.come(number, [float(number)])
    for number, loss in enumerate(losses):
        check.pass_halfway(number, [float(number)], loss)
    return check


@pytest.mark.parametrize(
    ("losses", "agrees"),
    [
        ((), False),
        ((0.0, 1.0), False),
        ((0.0, 1.0, 2.0), True),
        ((0.0, 2.0, 1.0), False),
        ((2.0, 1.0, 0.0), False),
        ((0.0, 2.0, 1.0, 3.0), True),
        ((0.0, 3.0, 2.0, 1.0), False),
        ((3.0, 4.0, 5.0, 6.0), False),  # They agree, but all have become worse.
    ],
)
def test_a_rung_may_end_a_trial_later_if_its_ranking_agrees_so_far(
    losses: Sequence[float], agrees: bool
) -> None:
    assert halfway(losses).may_end_again(9, 0, n_running=1) == agrees


def test_one_place_that_does_not_agree_is_enough() -> None:
    check = halfway((0.0, 1.0, 2.0))
    for number in range(3):
        check.come(number, [float(number), -float(number)])
    assert not check.may_end_again(9, 0, n_running=1)


def test_an_open_rung_says_that_early_values_may_mislead() -> None:
    check = OrderCheck()
    check.restore(doubted().trust())
    for number in range(20, 23):
        for rung in range(3):
            check.come(number, [float(number)] * (rung + 1))
    assert check.open_rungs
    assert not check.may_end_again(9, 1, n_running=1)
