"""A trial that is asked for while all devices are busy."""

from __future__ import annotations

from typing import Any

import optuna
import pytest

from tests.fakes import FakeClock
from tests.integration.dispatcher.database_faults import DiskFull
from tests.integration.dispatcher.endings.test_outage import check_books
from tests.integration.dispatcher.world import completes, sleeps
from tuner.domain.budget import Budget


class SlowSampler(optuna.samplers.RandomSampler):
    """Its suggestions take time.

    Args:
        clock: On which.
        seconds: So much.
    """

    def __init__(self, clock: FakeClock, seconds: float) -> None:
        super().__init__(seed=0)
        self._clock = clock
        self._seconds = seconds
        self.n_pending: list[int] = []

    def sample_relative(self, study: optuna.Study, trial: Any, space: Any) -> dict[str, Any]:
        running = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,))
        self.n_pending.append(len(running) - 1)
        self._clock.advance(self._seconds)
        return super().sample_relative(study, trial, space)


@pytest.fixture
def make_slow(make_world):
    def make(*arguments, seconds=0.2, **keywords):
        clock = FakeClock()
        sampler = SlowSampler(clock, seconds)
        world = make_world(*arguments, clock=clock, sampler=sampler, **keywords)
        return world, sampler

    return make


def test_freed_device_gets_its_trial_without_a_suggestion(make_slow):
    world, sampler = make_slow(sleeps, n_devices=2, n_trials=10)
    world.turn(1.0)
    assert len(sampler.n_pending) == 2, "no trial has ended, so that nothing is known"
    world.workers[0].complete()
    world.turn(1.0)
    assert len(world.workers) == 3
    assert len(sampler.n_pending) == 4
    assert sampler.n_pending[-1] == 2, "it knows of those that run"
    world.workers[1].complete()
    before_s = world.now_s
    world.turn()
    assert len(world.workers) == 4
    assert world.launcher.requests[-1].attempt_id == "3.1"
    assert world.workers[3].request.assign.trial_number == 3
    # The next one is asked for once the device has its trial.
    assert len(sampler.n_pending) == 5
    assert world.now_s - before_s == pytest.approx(0.2)


def test_trial_that_is_asked_for_early_is_run_once(make_slow):
    world, _ = make_slow(completes, n_devices=2, n_trials=7)
    result = world.run()
    assert result.n_completed == 7
    check_books(world, 7)
    assert len(world.workers) == 7


def test_quick_suggestions_are_asked_for_when_they_are_needed(make_slow):
    world, sampler = make_slow(sleeps, n_devices=2, n_trials=10, seconds=0.001)
    world.turn(1.0)
    world.workers[0].complete()
    world.turn(1.0)
    assert len(sampler.n_pending) == len(world.workers) == 3


def test_ctrl_c_puts_it_back(make_slow):
    world, _ = make_slow(sleeps, n_devices=1, n_trials=5)
    world.turn(1.0)
    world.workers[0].complete()
    world.turn(1.0)
    assert world.stored_states() == ["COMPLETE", "RUNNING", "RUNNING"]
    world.interrupt()
    world.run()
    assert world.stored_states() == ["COMPLETE", "WAITING", "WAITING"]


def test_budget_of_time_puts_it_back(make_slow):
    # Of so few trials nobody knows how long they take.
    world, _ = make_slow(completes, n_devices=1, budget=Budget(time_s=2.0))
    world.run()
    assert set(world.stored_states()) == {"COMPLETE", "WAITING"}
    assert world.stored_states().count("WAITING") == 1


def test_it_waits_where_the_database_does_not_answer(make_slow):
    world, _ = make_slow(sleeps, n_devices=1, n_trials=3)
    world.turn(1.0)
    world.workers[0].complete()
    world.turn(1.0)
    with DiskFull(world.database):
        world.workers[1].complete()
        world.turn(10.0)
        assert len(world.workers) == 2
    world.turn_until(lambda: len(world.workers) == 3)
    world.turn(1.0)  # It says hello.
    world.workers[2].complete()
    world.run()
    assert world.stored_states() == ["COMPLETE"] * 3
