"""One table has all attempts that hold devices; their states say which wait or are over."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.fakes import a_gpu
from tuner.devices.allocation.pool import Lease
from tuner.dispatch.attempts.attempt_table import AttemptTable
from tuner.dispatch.attempts.live_attempt import LiveAttempt
from tuner.dispatch.supply.grants import Candidate, Grant
from tuner.domain.attempt import TRANSITIONS, Attempt, AttemptState
from tuner.search.asked_trial import AskedTrial


def an_attempt(number: int) -> LiveAttempt:
    attempt = Attempt(
        trial_id=number,
        trial_number=number,
        number=1,
        seed=1,
        leased_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    asked = AskedTrial(trial_id=number, number=number, params={}, is_new=True)
    lease = Lease(number=number, attempt_id=attempt.id, devices=(a_gpu(number),))
    grant = Grant(candidate=Candidate(asked=asked, attempt_number=1), lease=lease)
    return LiveAttempt(attempt=attempt, grant=grant, params={}, leased_at_s=0.0)


def set_state(live: LiveAttempt, state: AttemptState, pid: int | None = None) -> None:
    live.attempt = replace(live.attempt, state=state, pid=pid)


@pytest.fixture
def three() -> tuple[AttemptTable, list[LiveAttempt]]:
    table, attempts = AttemptTable(), [an_attempt(number) for number in range(3)]
    for live in attempts:
        table.add(live)
    return table, attempts


def test_attempts_are_launched_in_the_order_of_their_devices(three) -> None:
    table, attempts = three
    order = []
    while (live := table.next_to_launch) is not None:
        order.append(live)
        set_state(live, AttemptState.LEASED, pid=7)
    assert order == attempts


def test_an_attempt_that_could_not_be_launched_is_not_launched_again(three) -> None:
    table, attempts = three
    set_state(attempts[0], AttemptState.CLEARING)
    assert table.next_to_launch is attempts[1]


def test_an_attempt_that_was_told_to_stop_before_its_launch_is_still_launched(three) -> None:
    """A process that is told to end does so; an attempt without one would never end."""
    table, attempts = three
    set_state(attempts[0], AttemptState.STOPPING)
    assert table.next_to_launch is attempts[0]


@pytest.mark.parametrize("state", [each for each in AttemptState if TRANSITIONS[each]])
def test_an_attempt_is_active_or_clearing(state: AttemptState, three) -> None:
    table, attempts = three
    set_state(attempts[1], state, pid=7)
    is_over = state is AttemptState.CLEARING
    assert (attempts[1] in table.clearing, attempts[1] in table.active) == (is_over, not is_over)
    assert len(table) == 3


def test_an_attempt_whose_devices_are_free_is_removed(three) -> None:
    table, attempts = three
    table.remove(attempts[1])
    assert list(table.values()) == [attempts[0], attempts[2]]
    assert attempts[1].attempt.id not in table
