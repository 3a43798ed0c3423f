"""Rungs: who goes on, by the rule of the paper, whatever the order in which trials come."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.search.rungs.table import RungTable, known_length


def table(losses: Sequence[float] = (), *, first: int = 1, factor: int = 3) -> RungTable:
    """Trials by number, all at rung 0."""
    made = RungTable(first=first, factor=factor)
    for number, loss in enumerate(losses):
        made.come(number, 0, loss)
    return made


@pytest.mark.parametrize(
    ("step", "rung"), [(0, -1), (1, -1), (2, 0), (5, 0), (6, 1), (17, 1), (18, 2), (54, 3)]
)
def test_rungs_lie_at_powers_of_the_factor(step: int, rung: int) -> None:
    assert table(first=2).rung_at(step) == rung


def test_step_far_below_the_first_rung_is_at_none() -> None:
    assert table(first=9).rung_at(1) == -1


def test_nobody_goes_on_before_so_many_came() -> None:
    made = table([0.1, 0.2])
    standing = made.standing(0, 0)
    assert not standing.goes_on
    assert math.isnan(standing.bar)
    made.come(2, 0, 0.3)
    assert made.standing(0, 0).goes_on
    assert not made.standing(1, 0).goes_on
    assert made.standing(1, 0).bar == 0.1


def test_who_waits_is_promoted_once_enough_worse_ones_came() -> None:
    made = table([0.2])
    made.pause(0)
    assert list(made.promotable()) == []
    made.come(1, 0, 0.3)
    made.come(2, 0, 0.4)
    assert next(made.promotable()) == 0
    made.unpause(0)
    assert list(made.promotable()) == []


def test_the_highest_rung_comes_first() -> None:
    made = table([0.5, 0.4, 0.6, 0.1, 0.7, 0.8])
    for number in (0, 1, 2):
        made.come(number, 1, 0.5 + number / 10)
    for number in (0, 1, 2, 3):
        made.pause(number)
    assert list(made.promotable()) == [0, 3]
    assert made.leader() == 0


def test_a_rung_that_was_skipped_was_come_to() -> None:
    made = table()
    assert made.come(7, 2, 0.5) == [0, 1, 2]
    assert made.come(7, 2, 0.1) == []
    assert made.rung_of(7) == 2
    assert [made.standing(7, rung).n_came for rung in range(3)] == [1, 1, 1]
    assert made.loss_of(7, 2) == made.standing(7, 2).loss == 0.5


def test_at_the_last_step_nobody_waits_for_others() -> None:
    made = table([0.5], first=2)
    made.come(0, 1, 0.5)
    made.pause(0)
    assert not made.is_end(1), "nobody knows how long a trial is"
    made.length = 6
    assert made.is_end(1)
    assert not made.is_end(0)
    assert list(made.promotable()) == [0]
    made.length = 7
    assert list(made.promotable()) == []


@pytest.mark.parametrize(("max_resource", "length"), [("auto", None), (4, 4), (5, 5)])
def test_length_of_a_trial_that_the_study_file_says(
    max_resource: str | int, length: int | None
) -> None:
    assert known_length(max_resource, 4) == length


@pytest.mark.parametrize(
    ("max_resource", "reason"), [("all", "a number or auto"), (3, "at least min_resource.* 4")]
)
def test_length_that_cannot_be_is_refused(max_resource: str | int, reason: str) -> None:
    with pytest.raises(
        ValueError, match=f"max_resource is .*{max_resource}.*, but must be {reason}"
    ):
        known_length(max_resource, 4)


def test_pausing_twice_and_ending_without_a_pause_do_no_harm() -> None:
    made = table([0.3])
    made.pause(0)
    made.pause(0)
    made.pause(99)
    assert set(made.paused) == {0}
    made.unpause(0)
    made.unpause(0)
    assert made.leader() is None


def passed(losses: Sequence[float], *, limits_worst: bool = True) -> list[int]:
    """Numbers of those that passed where trials end that do not, each judged as it came."""
    made, numbers = table(), []
    made.is_final, made.limits_worst = True, limits_worst
    for number, loss in enumerate(losses):
        made.come(number, 0, loss)
        if made.standing(number, 0).goes_on:
            numbers.append(number)
    return numbers


CHANCE = 0.9
#: One in ten learns.
MOST_LEARN_NOTHING = [0.001 * each if each % 10 == 5 else CHANCE for each in range(300)]


def test_not_all_of_those_that_learn_nothing_pass() -> None:
    assert len(passed(MOST_LEARN_NOTHING, limits_worst=False)) > 280, "as in Optuna"
    numbers = passed(MOST_LEARN_NOTHING)
    learning = [each for each in numbers if each % 10 == 5]
    # Of those that learn, each is worse than those before: a third of all passes, so all of them.
    assert len(learning) == 30
    # The others fill the third.
    assert len(numbers) == pytest.approx(100, abs=6)
    for first in range(30, 300, 90):
        assert sum(first <= each < first + 90 for each in numbers) == pytest.approx(30, abs=4)


def test_as_few_pass_at_each_later_rung() -> None:
    """One in thirty learns; who passes a rung comes to the next one."""
    made, n_passed = table(), [0] * 3
    made.is_final = made.limits_worst = True
    for number in range(3000):
        loss = 0.0001 * number if number % 30 == 5 else CHANCE
        for rung in range(3):
            made.come(number, rung, loss)
            if not made.standing(number, rung).goes_on:
                break
            n_passed[rung] += 1
    shares = [n / before for before, n in pairwise([3000, *n_passed])]
    assert shares == pytest.approx([1 / 3] * 3, abs=0.04)


@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_trial_that_comes_late_has_no_better_lot(is_reversed: bool) -> None:
    made, n_passed = table(), 0
    made.is_final = made.limits_worst = True
    for number in sorted(range(300), reverse=is_reversed):
        made.come(number, 0, MOST_LEARN_NOTHING[number])
        n_passed += made.standing(number, 0).goes_on
    assert n_passed == pytest.approx(100, abs=8)


def test_those_that_are_no_number_never_pass_while_another_is() -> None:
    assert passed([0.5, *[math.inf] * 30]) == [0]
    assert passed([*[math.inf] * 3, 0.5, *[math.inf] * 30]) == [0, 1, 2, 3]


def test_the_worst_number_is_the_worst_also_where_others_are_no_number() -> None:
    with_nan = [math.inf if each == 40 else loss for each, loss in enumerate(MOST_LEARN_NOTHING)]
    assert len(passed(with_nan)) < 110 < 250 < len(passed(with_nan, limits_worst=False))


@pytest.mark.parametrize(
    "losses",
    [
        # The ranking says nothing where all are equal.
        [CHANCE] * 30,
        # Where another is worse, so many learn something.
        [1.0, *MOST_LEARN_NOTHING],
    ],
)
def test_otherwise_equals_pass_together_as_in_optuna(losses: list[float]) -> None:
    assert passed(losses) == passed(losses, limits_worst=False)


@given(losses=st.lists(st.sampled_from([0.1, 0.2, 0.3, math.inf]), min_size=1, max_size=30))
def test_only_the_worst_are_limited(losses: list[float]) -> None:
    def passing(*, limits_worst: bool) -> set[int]:
        made = table(losses)
        made.is_final, made.limits_worst = True, limits_worst
        return {each for each in range(len(losses)) if made.standing(each, 0).goes_on}

    strict, usual = passing(limits_worst=True), passing(limits_worst=False)
    assert strict <= usual
    assert {each for each in usual if losses[each] == min(losses)} <= strict
    worst = max((each for each in losses if each < math.inf), default=math.inf)
    assert all(losses[number] >= worst for number in usual - strict)
    assert all(losses[number] > min(losses) for number in usual - strict)


@given(
    losses=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60),
    factor=st.integers(2, 5),
)
def test_as_many_go_on_as_the_paper_says_and_no_better_one_waits(
    losses: list[float], factor: int
) -> None:
    made = table(losses, factor=factor)
    for number in range(len(losses)):
        made.pause(number)
    promoted = []
    while (number := next(made.promotable(), None)) is not None:
        made.unpause(number)
        promoted.append(number)
    assert len(promoted) == len(losses) // factor
    in_order = sorted(range(len(losses)), key=lambda each: (losses[each], each))
    assert promoted == in_order[: len(promoted)]


# -- halfway -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "factor"), [(1, 2), (1, 3), (2, 3), (7, 4)])
def test_halfway_is_the_same_ratio_from_both_rungs(first: int, factor: int) -> None:
    made = RungTable(first=first, factor=factor)
    for rung in range(8):
        assert made.step_at(rung) == made.step_of(rung)
        step = made.step_at(rung + 0.5)
        assert step - 1 < first * factor**rung * math.sqrt(factor) <= step


def test_a_trial_is_halfway_after_its_own_rung_only() -> None:
    made = RungTable(first=2, factor=3)
    assert not made.is_halfway(0, 4)
    made.come(0, 0, 1.0)
    assert [step for step in range(1, 20) if made.is_halfway(0, step)] == [4, 5]
    made.come(0, 1, 1.0)
    assert [step for step in range(1, 20) if made.is_halfway(0, step)] == [*range(11, 18)]
