"""Who trains the next slice: whoever is worth most for its time."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from tuner.search.rungs.freeze_thaw_table import SliceStanding, SliceTable, why_not
from tuner.search.rungs.step_time import Measured

N_STEPS = 32
LR: dict[str, BaseDistribution] = {"lr": FloatDistribution(0.0, 1.0)}


def loss_of(lr: float, step: int) -> float:
    """The nearer to 0.7 the better, and the longer."""
    return abs(lr - 0.7) + 1.0 / (1 + step)


def a_trial(number: int, lr: float | None) -> FrozenTrial:
    params = {} if lr is None else {"lr": lr}
    trial = create_trial(
        state=TrialState.RUNNING, params=params, distributions=LR if params else {}
    )
    trial.number = number
    return trial


def a_table(rates: Mapping[int, float | None], *, seed: int = 0) -> SliceTable:
    """Of trials by number, with their learning rates."""
    table = SliceTable(first=1, factor=2, seed=seed)
    trials = {number: a_trial(number, lr) for number, lr in rates.items()}
    table.trial_of = trials.__getitem__
    table.length = N_STEPS
    return table


def train(table: SliceTable, number: int, lr: float, rung: int) -> None:
    """Up to the end of a slice, where it waits."""
    for each in range(rung + 1):
        table.come(number, each, loss_of(lr, table.step_of(each)))
    table.pause(number)


def a_searched_table(**options: int) -> tuple[SliceTable, dict[int, float]]:
    """Ten trials after three slices each, of which the seventh is the best."""
    rates = {number: number / 10 for number in range(10)}
    table = a_table(rates, **options)
    for number, lr in rates.items():
        train(table, number, lr, rung=2)
    return table, rates


def standing_of(table: SliceTable, number: int) -> SliceStanding:
    return table.standing(number, table.rung_of(number))


def test_nobody_goes_on_before_there_are_three_to_learn_from() -> None:
    table = a_table({0: 0.1, 1: 0.7})
    for number, lr in ((0, 0.1), (1, 0.7)):
        table.come(number, 0, loss_of(lr, 1))
        standing = table.standing(number, 0)
        assert not standing.goes_on
        table.pause(number)
        told = why_not(standing, 1, 0.5, "loss")
        assert told == (
            "at the end of its slice (step 1), loss 0.5: no trial continues before 3 trials have "
            "ended a slice"
        )
    assert next(table.promotable(), None) is None
    assert table.leader() == 1


@pytest.mark.slow
def test_the_best_leads_and_the_worst_does_not_go_on() -> None:
    table, _ = a_searched_table()
    assert table.leader() == 7
    table.unpause(0)
    standing = standing_of(table, 0)
    assert not standing.goes_on
    assert standing.worth < standing.other_worth


def test_who_runs_has_no_start_to_pay_for() -> None:
    table, _ = a_searched_table()
    for number in range(10):
        table.pace.take_in(number, Measured(of_step=1.0, of_start=1000.0))
    table.unpause(7)
    running = standing_of(table, 7)
    assert running.goes_on
    table.pause(7)
    other = standing_of(table, 6)
    assert other.other in (7, None)
    assert other.other_worth < running.worth


def test_the_slow_one_of_two_that_are_alike_waits() -> None:
    rates = {0: 0.1, 1: 0.4, 2: 0.9, 3: 0.7, 4: 0.7}
    table = a_table(rates)
    for number, lr in rates.items():
        train(table, number, lr, rung=2)
        table.pace.take_in(number, Measured(of_step=1.0, of_start=1.0))
    quick = table.leader()
    assert quick in (3, 4)  # Rounding, which differs between processors, says which.
    table.pace.take_in(quick, Measured(of_step=60.0, of_start=1.0))
    table.unpause(0)  # Something has happened since.
    assert table.leader() == (4 if quick == 3 else 3)


def test_a_new_trial_begins_as_often_as_it_beats_the_best_that_waits() -> None:
    """Whose configuration is drawn at random: another one each time that more is known."""
    found = set()
    for seed in range(8):
        table = a_table({0: 0.0, 1: 0.05, 2: 0.1}, seed=seed)
        for number, (lr, rung) in enumerate([(0.0, 2), (0.05, 2), (0.1, 4)]):
            train(table, number, lr, rung)
        found.add(next(table.promotable(), None))
    assert found == {2, None}


def test_the_same_is_decided_until_something_happens() -> None:
    table, _ = a_searched_table()
    first = [next(table.promotable(), None) for _ in range(5)]
    assert len(set(first)) == 1


def test_a_curve_is_its_own_where_configurations_tell_nothing() -> None:
    """Trials of a program whose parameters are not known, or not the same."""
    table = a_table(dict.fromkeys(range(6)))
    for number in range(6):
        train(table, number, number / 10, rung=2)
    assert table.leader() == 5


def test_parameters_that_only_some_have_are_left_aside() -> None:
    table = a_table({0: 0.1, 1: None, 2: 0.6, 3: 0.2})
    for number, lr in ((0, 0.1), (1, 0.5), (2, 0.6), (3, 0.2)):
        train(table, number, lr, rung=1)
    assert table.leader() == 2


def test_who_has_diverged_neither_goes_on_nor_misleads() -> None:
    table, rates = a_searched_table()
    trials = {number: a_trial(number, lr) for number, lr in {**rates, 10: 0.7}.items()}
    table.trial_of = trials.__getitem__
    table.come(10, 0, math.inf)
    assert standing_of(table, 10).loss == math.inf
    assert why_not(standing_of(table, 10), 1, math.nan, "loss").endswith("loss nan")
    assert table.leader() == 7


def test_where_all_have_diverged_nobody_goes_on() -> None:
    table = a_table({number: 0.5 for number in range(4)})
    for number in range(4):
        table.come(number, 0, math.inf)
    assert not standing_of(table, 3).goes_on
    assert next(table.promotable(), None) is None


def test_values_that_are_all_alike_do_no_harm() -> None:
    table = a_table({number: number / 10 for number in range(5)})
    for number in range(5):
        table.come(number, 0, 0.5)
        table.pause(number)
    assert table.leader() in range(5)
    table.unpause(4)
    assert not math.isnan(standing_of(table, 4).worth)


def test_who_waits_at_the_end_goes_on_to_end() -> None:
    table, _ = a_searched_table()
    table.length = 4
    table.completes(7, 4, 0.1)
    assert next(table.promotable(), None) is not None


def test_what_ends_counts_and_is_bettered() -> None:
    table, _ = a_searched_table()
    table.unpause(7)
    table.come(7, 3, loss_of(0.7, 8))
    before = standing_of(table, 7).worth
    table.completes(9, N_STEPS, -50.0)
    table.completes(9, N_STEPS, -50.0)
    assert standing_of(table, 7).worth < before


def test_where_nobody_can_wait_only_ends_count() -> None:
    """The best by far would hardly better its own value, but is lost if it does not go on."""
    table = a_table({number: None for number in range(8)})
    table.is_final = True
    for number in range(7):
        table.come(number, 0, 10.0 + number)
    table.completes(0, N_STEPS, 9.9)
    table.come(7, 0, 1.0)
    assert standing_of(table, 7).goes_on
    table.come(6, 1, 16.0)
    assert not standing_of(table, 6).goes_on
    assert next(table.promotable(), None) is None


def test_the_first_ones_go_on_where_nobody_can_wait() -> None:
    table = a_table({0: 0.5})
    table.is_final = True
    table.come(0, 0, 1.0)
    assert standing_of(table, 0).goes_on


def test_a_decision_tells_its_numbers() -> None:
    table, _ = a_searched_table()
    table.pace.take_in(7, Measured(of_step=2.0, of_start=5.0))
    table.unpause(0)
    told = why_not(standing_of(table, 0), 4, -0.9, "accuracy")
    assert told.startswith(
        "at the end of its slice (step 4), accuracy -0.9: continuing is expected"
    )
    assert " a second, and " in told


@pytest.mark.parametrize("n_trials", [50, 400])
def test_the_model_looks_at_a_bounded_number_of_points(n_trials: int) -> None:
    rates = {number: (number * 37 % n_trials) / n_trials for number in range(n_trials)}
    table = a_table(rates)
    for number, lr in rates.items():
        train(table, number, lr, rung=number % 6)
    assert table.leader() is not None
    chosen = table._chosen(240, ())
    n_points = sum(table.rung_of(number) + 1 for number in chosen)
    assert n_points <= 240
    assert {table.rung_of(number) for number in chosen} == set(range(6))
    best = min(rates, key=lambda number: loss_of(rates[number], table.step_of(number % 6)))
    assert best in chosen
