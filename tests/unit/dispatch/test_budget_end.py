"""Whether one more trial fits into what is left of a budget."""

from __future__ import annotations

import pytest

from tuner.dispatch.supply.budget_end import BudgetEnd
from tuner.domain.attempt import Outcome
from tuner.domain.budget import Budget, EndedUses, Spent, TrialUse

HOUR = 3600.0


def spent(time_s: float = 0.0, device_s: float = 0.0) -> Spent:
    return Spent(trials=5, time_s=time_s, device_s=device_s)


def knowing(*times_s: float) -> BudgetEnd:
    """All of them completed."""
    uses = [TrialUse(time_s=each, device_s=2 * each) for each in times_s]
    return BudgetEnd(EndedUses(completed=uses, ended=uses))


def test_nothing_is_said_before_three_have_completed() -> None:
    budget = Budget(time_s=100.0)
    assert knowing(60.0, 60.0).too_little(budget, spent(time_s=99.0), []) is None
    assert knowing(60.0, 60.0, 60.0).too_little(budget, spent(time_s=99.0), []) is not None


@pytest.mark.parametrize(("left_s", "fits"), [(60.0, True), (59.9, False)])
def test_half_of_the_trials_must_fit_into_the_time(left_s: float, fits: bool) -> None:
    found = knowing(10.0, 60.0, 900.0).too_little(
        Budget(time_s=1000.0), spent(time_s=1000.0 - left_s), []
    )
    assert found == (None if fits else "59.9 s of 1000 s are left, and a trial takes 60 s")


def test_trials_that_run_have_their_part_of_device_hours() -> None:
    closing, budget = knowing(HOUR, HOUR, HOUR), Budget(device_hours=10.0)
    for trial in range(3):
        closing.ended(trial, Outcome.CANCELLED, TrialUse(time_s=HOUR, device_s=1 * HOUR))
    # 3 hours are left and a trial takes 2. Attempts take 1, of which one has had half an hour.
    assert closing.too_little(budget, spent(device_s=7 * HOUR), [HOUR / 2]) is None
    assert closing.too_little(budget, spent(device_s=7 * HOUR), [0.0, HOUR / 2]) is not None
    # What has taken more than all others has nothing left that could be counted on.
    assert closing.too_little(budget, spent(device_s=7 * HOUR), [3 * HOUR]) is None


def test_who_has_outlasted_the_pruned_is_expected_to_take_as_long_as_the_others() -> None:
    closing, budget = BudgetEnd(EndedUses()), Budget(device_hours=100.0)
    for trial, hours in enumerate([1.0, 1.0, 1.0, 1.0, 9.0]):
        outcome = Outcome.PRUNED if hours == 1.0 else Outcome.COMPLETED
        closing.ended(trial, outcome, TrialUse(time_s=hours * HOUR, device_s=hours * HOUR))
    # A new trial takes 1. One that has had 2 takes 7 more, though the mean is 2.6.
    assert closing.too_little(budget, spent(device_s=91.9 * HOUR), [2 * HOUR]) is None
    assert closing.too_little(budget, spent(device_s=92.1 * HOUR), [2 * HOUR]) is not None


def test_new_trial_may_be_pruned_and_one_that_was_promoted_is_trained_whole() -> None:
    closing, budget = BudgetEnd(EndedUses()), Budget(time_s=100.0)
    for trial, lasted_s in enumerate([2.0, 50.0, 2.0, 6.0, 2.0, 60.0, 2.0, 6.0, 70.0]):
        outcome = Outcome.COMPLETED if lasted_s >= 50.0 else Outcome.PRUNED
        closing.ended(trial, outcome, TrialUse(time_s=lasted_s))
    assert closing.too_little(budget, spent(time_s=94.0), []) is None
    assert closing.too_little(budget, spent(time_s=94.1), []) is not None
    assert closing.too_little(budget, spent(time_s=94.0), [], times=2.0) is not None
    assert closing.too_little_for(0.5, budget, spent(time_s=70.0), []) is None
    assert closing.too_little_for(0.5, budget, spent(time_s=70.1), []) is not None


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.OUT_OF_MEMORY, Outcome.TIMED_OUT])
def test_failures_do_not_make_trials_look_short(outcome: Outcome) -> None:
    closing, budget = knowing(60.0, 60.0, 60.0), Budget(time_s=100.0)
    for trial in range(9):
        closing.ended(trial, outcome, TrialUse(time_s=1.0))
    assert closing.too_little(budget, spent(time_s=50.0), []) is not None


def test_attempts_of_one_trial_are_added_up() -> None:
    closing, budget = BudgetEnd(EndedUses()), Budget(time_s=100.0)
    for trial in range(3):
        closing.ended(trial, Outcome.PAUSED, TrialUse(time_s=20.0))
        closing.ended(trial, Outcome.COMPLETED, TrialUse(time_s=30.0))
    assert closing.too_little(budget, spent(time_s=51.0), []) is not None
    assert closing.too_little(budget, spent(time_s=49.0), []) is None


def test_budget_of_trials_alone_is_never_too_little() -> None:
    assert knowing(60.0, 60.0, 60.0).too_little(Budget(trials=9), spent(time_s=1e9), []) is None
