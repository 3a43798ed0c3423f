"""Which trial gets one more attempt."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tuner.attempt import Attempt, Cause, Ending, Outcome
from tuner.retries import Retries

FAILED = Ending(outcome=Outcome.FAILED, cause=Cause.EXCEPTION)
OUT_OF_MEMORY = Ending(outcome=Outcome.OUT_OF_MEMORY, cause=Cause.DEVICE_MEMORY)
PORT_TAKEN = Ending(outcome=Outcome.FAILED_TO_START, cause=Cause.PORT_TAKEN)
TIMED_OUT = Ending(outcome=Outcome.TIMED_OUT, cause=Cause.TIMEOUT)


def attempt(number: int, trial_id: int = 1) -> Attempt:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return Attempt(trial_id=trial_id, trial_number=0, number=number, seed=0, leased_at=at)


def granted(retries: Retries, *endings: Ending, is_crowded_out: bool = False) -> list[bool]:
    """One attempt after the other, of one trial."""
    return [
        retries.grant(attempt(number), ending, is_crowded_out=is_crowded_out)
        for number, ending in enumerate(endings, start=1)
    ]


@pytest.mark.parametrize("n_allowed", [0, 1, 3])
def test_so_many_failures_as_allowed_are_tried_again(n_allowed: int) -> None:
    found = granted(Retries(n_allowed), *[FAILED] * 5)
    assert found == [number <= n_allowed for number in range(1, 6)]


def test_what_the_program_did_not_do_costs_no_retry() -> None:
    assert granted(Retries(1), PORT_TAKEN, FAILED, FAILED) == [True, True, False]
    assert granted(Retries(0), OUT_OF_MEMORY, is_crowded_out=True) == [True]
    assert granted(Retries(0), OUT_OF_MEMORY) == [False]


def test_free_retries_come_to_an_end() -> None:
    assert granted(Retries(0), *[PORT_TAKEN] * 5) == [True, True, True, False, False]


def test_time_that_ran_out_would_run_out_again() -> None:
    assert granted(Retries(5), TIMED_OUT) == [False]


def test_each_trial_counts_for_itself() -> None:
    retries = Retries(1)
    for trial_id in (1, 2):
        assert retries.grant(attempt(1, trial_id), FAILED, is_crowded_out=False)
