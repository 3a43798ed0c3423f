"""Which trial gets one more attempt."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tuner.dispatch.attempts.endings.retries import Retries
from tuner.domain.attempt import Attempt, Cause, Ending, Outcome

FAILED = Ending(outcome=Outcome.FAILED, cause=Cause.EXCEPTION)
OUT_OF_MEMORY = Ending(outcome=Outcome.OUT_OF_MEMORY, cause=Cause.DEVICE_MEMORY)
PORT_TAKEN = Ending(outcome=Outcome.FAILED_TO_START, cause=Cause.PORT_TAKEN)
CANCELLED = Ending(outcome=Outcome.CANCELLED, cause=Cause.SIGNAL)
LOST = Ending(outcome=Outcome.LOST, cause=Cause.DISPATCHER_GONE)
TIMED_OUT = Ending(outcome=Outcome.TIMED_OUT, cause=Cause.TIMEOUT)


def attempt(number: int, trial_id: int = 1) -> Attempt:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return Attempt(trial_id=trial_id, trial_number=0, number=number, seed=0, leased_at=at)


def granted(retries: Retries, *endings: Ending) -> list[bool]:
    """One attempt after the other, of one trial."""
    return [
        retries.grant(attempt(number), ending) for number, ending in enumerate(endings, start=1)
    ]


@pytest.mark.parametrize("n_allowed", [0, 1, 3])
def test_so_many_failures_as_allowed_are_tried_again(n_allowed: int) -> None:
    found = granted(Retries(n_allowed), *[FAILED] * 5)
    assert found == [number <= n_allowed for number in range(1, 6)]


def test_what_the_program_did_not_do_costs_no_retry() -> None:
    assert granted(Retries(1), PORT_TAKEN, FAILED, FAILED) == [True, True, False]


@pytest.mark.parametrize("n_allowed", [0, 3])
@pytest.mark.parametrize("cause", [Cause.DEVICE_MEMORY, Cause.HOST_MEMORY])
def test_out_of_memory_is_tried_once_more_with_room(n_allowed: int, cause: Cause) -> None:
    retries = Retries(n_allowed)
    no_memory = Ending(outcome=Outcome.OUT_OF_MEMORY, cause=cause)
    assert not retries.needs_room(1)
    assert granted(retries, no_memory) == [True]
    assert retries.needs_room(1)
    assert not retries.grant(attempt(2), no_memory)


def test_out_of_memory_takes_no_retry_of_the_users() -> None:
    assert granted(Retries(1), OUT_OF_MEMORY, FAILED, FAILED) == [True, True, False]


def test_trial_that_failed_otherwise_meanwhile_has_had_its_room() -> None:
    assert granted(Retries(2), OUT_OF_MEMORY, FAILED, OUT_OF_MEMORY) == [True, True, False]


def test_free_retries_come_to_an_end() -> None:
    assert granted(Retries(0), *[PORT_TAKEN] * 5) == [True, True, True, False, False]


def test_time_that_ran_out_would_run_out_again() -> None:
    assert granted(Retries(5), TIMED_OUT) == [False]


def test_each_trial_counts_for_itself() -> None:
    retries = Retries(1)
    for trial_id in (1, 2):
        assert retries.grant(attempt(1, trial_id), FAILED)


def test_number_of_the_attempt_says_nothing() -> None:
    """A trial whose dispatcher was killed four times has not failed for it."""
    assert Retries(1).grant(attempt(5), FAILED)


def test_what_is_ours_is_tried_for_ever() -> None:
    retries = Retries(0)
    assert all(retries.grant(attempt(number), FAILED, is_ours=True) for number in range(1, 20))
    assert not retries.grant(attempt(20), FAILED)


def test_trial_that_others_end_is_tried_again_a_few_times() -> None:
    assert granted(Retries(0), *[CANCELLED] * 4) == [True, True, True, False]


@pytest.mark.parametrize(
    ("before", "may_fail_again"),
    [
        pytest.param([], True, id="nothing"),
        pytest.param([LOST, CANCELLED, PORT_TAKEN, OUT_OF_MEMORY], True, id="not-its-fault"),
        pytest.param([LOST, FAILED, CANCELLED], False, id="failed-once"),
    ],
)
def test_failures_before_this_start_count(before: list[Ending], may_fail_again: bool) -> None:
    retries = Retries(1)
    retries.recall(1, before)
    assert retries.grant(attempt(len(before) + 1), FAILED) is may_fail_again


@pytest.mark.parametrize(
    ("before", "has_had_room"),
    [
        pytest.param([], False, id="nothing"),
        pytest.param([LOST, FAILED, CANCELLED], False, id="otherwise"),
        pytest.param([OUT_OF_MEMORY], True, id="once"),
        pytest.param([OUT_OF_MEMORY, LOST], True, id="and-was-lost-with-its-room"),
    ],
)
def test_room_that_was_given_before_this_start_counts(
    before: list[Ending], has_had_room: bool
) -> None:
    retries = Retries(0)
    retries.recall(1, before)
    assert retries.needs_room(1) is has_had_room
    assert not retries.needs_room(2)
    assert retries.grant(attempt(len(before) + 1), OUT_OF_MEMORY) is not has_had_room


def test_what_is_not_written_yet_is_not_forgotten() -> None:
    retries = Retries(1)
    assert retries.grant(attempt(1), FAILED)
    retries.recall(1, [])
    assert not retries.grant(attempt(2), FAILED)
