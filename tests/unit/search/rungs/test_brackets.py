"""Brackets: nobody is compared with a trial of another one, and who went furthest goes on first."""

from __future__ import annotations

from tuner.search.rungs.brackets import NEVER, Brackets
from tuner.search.rungs.table import RungTable


def brackets() -> Brackets:
    return Brackets(lambda first: RungTable(first=first, factor=2))


def come(made: Brackets, number: int, first: int, loss: float, rung: int = 0) -> None:
    made.put(number, first)
    table = made.table_of(number)
    assert table is not None
    table.come(number, rung, loss)
    made.pause(number)


def test_trials_are_compared_in_their_own_bracket() -> None:
    made = brackets()
    come(made, 0, 1, 0.5)
    come(made, 1, 4, 0.1)
    assert made.promotable() is None, "each is alone in its bracket"
    come(made, 2, 1, 0.6)
    assert made.promotable() == 0


def test_who_waits_at_the_latest_step_goes_on_first() -> None:
    made = brackets()
    for number, first in ((0, 1), (1, 1), (2, 4), (3, 4)):
        come(made, number, first, number / 10)
    assert made.promotable() == 2
    made.unpause(2)
    assert made.promotable() == 0
    assert made.leader() == 3
    assert set(made.paused) == {0, 1, 3}


def test_the_step_decides_and_not_the_number() -> None:
    made = brackets()
    for number, first in ((0, 4), (1, 4), (2, 1), (3, 1)):
        come(made, number, first, number / 10)
    assert made.promotable() == 0


def test_of_two_at_the_same_step_the_better_one_leads() -> None:
    made = brackets()
    come(made, 0, 1, 0.9, rung=2)
    come(made, 1, 4, 0.3)
    come(made, 2, 2, 0.1)
    assert made.leader() == 1


def test_a_trial_without_a_rung_never_waits() -> None:
    made = brackets()
    made.put(0, NEVER)
    assert 0 in made
    assert 1 not in made
    assert made.table_of(0) is None
    made.pause(0)
    made.unpause(0)
    assert not made.paused
    assert made.leader() is None


def test_a_bracket_is_for_good() -> None:
    made = brackets()
    made.put(0, 2)
    made.put(0, 4)
    table = made.table_of(0)
    assert table is not None
    assert table.first == 2


def test_the_length_of_a_trial_holds_in_all_brackets() -> None:
    made = brackets()
    come(made, 0, 4, 0.5)
    made.length = 4
    assert made.promotable() == 0, "it has only its end left"
    made.put(1, 2)
    table = made.table_of(1)
    assert table is not None
    assert table.length == made.length == 4
    assert [each.first for each in made.tables] == [4, 2]


def test_who_waited_at_a_lower_rung_waits_at_the_higher_one() -> None:
    made = brackets()
    come(made, 0, 1, 0.1)
    come(made, 1, 1, 0.2)
    come(made, 0, 1, 0.1, rung=1)
    assert made.promotable() is None, "it is alone at its rung"
    made.unpause(0)
    assert set(made.paused) == {1}


def test_what_the_leader_has_left() -> None:
    made = brackets()
    come(made, 0, 1, 0.5)
    come(made, 1, 2, 0.5)
    assert made.share_left_of_leader is None, "nobody knows how long a training is"
    made.length = 8
    assert made.share_left_of_leader == 0.75
