"""The end of an allocation: trials that save come back, and those that cannot are no use."""

from __future__ import annotations

import signal
from datetime import timedelta

import pytest

from tests.fakes import FakeClock
from tests.integration.dispatcher.world import World, sleeps
from tuner.dispatch.terms import AllocationTerms, Leave
from tuner.launch.inbox import SignalReceived

NOTICE_S = 20.0


def lent(seconds: float) -> dict[str, object]:
    """An allocation of this length, which begins with the dispatcher."""
    clock = FakeClock()
    deadline = clock.now().utc + timedelta(seconds=seconds)
    terms = AllocationTerms(place="slurm 7_0", idle_s=600, notice_s=NOTICE_S, deadline=deadline)
    return {"clock": clock, "allocation": terms}


def saves_at_its_end(world: World) -> None:
    for worker in world.workers:
        folder = world.files.checkpoints(worker.trial_number)
        folder.mkdir(parents=True)
        (folder / "epoch_3").mkdir()  # As a program of others names it.


def test_trials_that_cannot_save_in_an_allocation_end_it_for_good(make_world):
    world = make_world(sleeps, **lent(1000))
    result = world.run()
    assert result.leave is Leave.TOO_SHORT
    assert result.reason == (
        "slurm 7_0 is too short: a trial ran for 990 s, saved no checkpoint, and would start from "
        "the beginning in the next allocation. Save checkpoints (trial.save_checkpoint), or give "
        "engine.time more than a trial takes"
    )
    assert world.stored_states() == ["WAITING"] * 2


def test_trials_that_leave_anything_come_back(make_world):
    world = make_world(sleeps, **lent(1000))
    world.turn(979)
    assert not world.endings
    saves_at_its_end(world)
    assert world.run().leave is Leave.NOTICE


def test_allocation_in_which_a_trial_completed_comes_back(make_world):
    def program(worker):
        worker.hello()
        if worker.trial_number == 0:
            worker.later(700, worker.complete)

    world = make_world(program, **lent(1000))
    assert world.run().leave is Leave.NOTICE


@pytest.mark.parametrize("passed_s", [500, 800])
def test_preempted_allocation_says_nothing_of_its_length(make_world, passed_s):
    world = make_world(sleeps, **lent(1000))
    world.turn(passed_s)
    world.inbox.post(SignalReceived(number=signal.SIGTERM))
    assert world.run().leave is Leave.NOTICE


def test_slurm_tells_of_a_time_limit_early(make_world):
    world = make_world(sleeps, **lent(1000))
    world.turn(920)
    world.inbox.post(SignalReceived(number=signal.SIGTERM))
    assert world.run().leave is Leave.TOO_SHORT
