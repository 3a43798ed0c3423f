"""Trials that failed before any has ended well wait again at the next start, on every database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from optuna.trial import TrialState

from tests.fakes import a_gpu
from tests.hosts import ALIVE
from tests.integration.store.test_peers import NOW, Member
from tuner.devices.allocation.pool import Lease
from tuner.domain.attempt import Attempt, AttemptState, Cause, Ending, Outcome, advance
from tuner.search.trial_attributes.infeasible import OWN_PREFIX
from tuner.store.records.broken_program import FORGIVEN_KEY

BOOM = Ending(outcome=Outcome.FAILED, cause=Cause.EXCEPTION, detail="ValueError: boom")
TOO_LONG = Ending(outcome=Outcome.TIMED_OUT, cause=Cause.TIMEOUT, detail="")
WELL = Ending(outcome=Outcome.COMPLETED, values={})
NO_MEMORY = Ending(outcome=Outcome.OUT_OF_MEMORY, cause=Cause.HOST_MEMORY, detail="")
PRUNED = Ending(outcome=Outcome.PRUNED)
STATES = {
    Outcome.COMPLETED: TrialState.COMPLETE,
    Outcome.PRUNED: TrialState.PRUNED,
    Outcome.OUT_OF_MEMORY: TrialState.PRUNED,
}
Join = Callable[[], Member]


@pytest.fixture
def join(url: str) -> Iterator[Join]:
    members: list[Member] = []

    def join() -> Member:
        members.append(Member(url, ALIVE))
        return members[-1]

    yield join
    for member in members:
        member.database.close()


def run_trial(member: Member, ending: Ending) -> int:
    """One attempt of a new trial, to its end; gives the trial's id."""
    trial = member.study.ask()
    if ending is NO_MEMORY:
        trial.set_constraint(f"{OWN_PREFIX}out_of_memory", 1.0)
    attempt = Attempt(
        trial_id=trial._trial_id, trial_number=trial.number, number=1, seed=1, leased_at=NOW
    )
    lease = Lease(number=1, attempt_id=attempt.id, devices=(a_gpu(0),))
    member.recorder.lease(attempt, lease, params={}, log_path="/log")
    state = STATES.get(ending.outcome, TrialState.FAIL)
    values = [0.5] if ending is WELL else None
    member.storage.set_trial_state_values(trial._trial_id, state, values)
    attempt = advance(replace(attempt, ending=ending), AttemptState.CLEARING, at=NOW)
    member.recorder.moved(attempt, at=NOW, params={})
    member.recorder.moved(advance(attempt, AttemptState.FINISHED, at=NOW), at=NOW)
    member.recorder.commit()
    return trial._trial_id


def leave(member: Member) -> None:
    member.recorder.end(NOW)
    member.recorder.commit()


def test_failed_trials_wait_again_at_the_next_start(join: Join) -> None:
    first = join()
    failed, late = run_trial(first, BOOM), run_trial(first, TOO_LONG)
    leave(first)
    second = join()
    assert second.recorder.tried_again == [failed]
    # Time depends on the configuration, and not on the program alone.
    assert second.storage.get_trial(late).state is TrialState.FAIL
    again = second.storage.get_trial(failed)
    assert (again.state, again.datetime_start, again.datetime_complete) == (
        TrialState.WAITING,
        None,
        None,
    )
    assert again.system_attrs[FORGIVEN_KEY] == 1
    assert second.recorder.history.endings_of(failed) == []
    assert second.study.ask()._trial_id == failed


def test_a_trial_that_ran_out_of_memory_has_not_ended_well(join: Join) -> None:
    first = join()
    failed, _ = run_trial(first, BOOM), run_trial(first, NO_MEMORY)
    leave(first)
    assert join().recorder.tried_again == [failed]


@pytest.mark.parametrize("ending", [WELL, PRUNED])
def test_they_stay_failed_once_a_trial_has_ended_well(join: Join, ending: Ending) -> None:
    first = join()
    failed, _ = run_trial(first, BOOM), run_trial(first, ending)
    leave(first)
    second = join()
    assert second.recorder.tried_again == []
    assert second.storage.get_trial(failed).state is TrialState.FAIL


def test_they_stay_failed_while_another_dispatcher_works(join: Join, url: str) -> None:
    if url.startswith("sqlite"):
        pytest.skip("an SQLite file has one dispatcher at a time")
    first = join()
    failed = run_trial(first, BOOM)
    second = join()
    assert second.recorder.tried_again == []
    assert second.storage.get_trial(failed).state is TrialState.FAIL
