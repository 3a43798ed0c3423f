"""A suggestion that takes long is made elsewhere: what runs is served, and devices wait for it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import pytest

from tests.integration.dispatcher.devices.test_idle import idle_s
from tests.integration.dispatcher.world import FakeWorker, World
from tests.integration.search.gaussian import gaussian
from tuner.devices.idle_causes import IdleCause
from tuner.search.samplers.out_of_process.sampler import OutOfProcessSampler, out_of_process

N_STARTUP = 2

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")


@pytest.fixture
def aside() -> Iterator[OutOfProcessSampler]:
    sampler = out_of_process(gaussian(n_startup_trials=N_STARTUP))
    assert sampler is not None
    yield sampler
    sampler.close()


def waits(worker: FakeWorker) -> None:
    worker.later(0.1, worker.hello)
    if worker.trial_number < N_STARTUP:
        worker.later(1.0, lambda: worker.complete(worker.trial_number / 10))


def test_loop_goes_on_while_a_suggestion_is_made(
    make_world: Callable[..., World], aside: OutOfProcessSampler
) -> None:
    world = make_world(waits, n_devices=2, n_trials=5, sampler=aside)
    os.kill(aside.pid, signal.SIGSTOP)
    world.turn(2.0)
    assert world.search.counts.n_begun == N_STARTUP
    assert set(world.dispatcher._usage.causes.values()) == {IdleCause.NO_SUGGESTION}

    os.kill(aside.pid, signal.SIGCONT)
    world.turn_until(lambda: len(world.workers) > N_STARTUP)
    os.kill(aside.pid, signal.SIGSTOP)
    world.turn(1.0)
    running = world.workers[N_STARTUP]
    running.report(1)
    world.turn(1.0)
    assert len(running.verdicts) == 1, "whatever else is in the making"

    os.kill(aside.pid, signal.SIGCONT)
    world.turn_until(lambda: len(world.workers) == N_STARTUP + 2)
    world.turn(1.0)  # They say hello.
    for worker in world.workers[N_STARTUP:]:
        worker.complete(0.5)
    world.turn_until(lambda: len(world.workers) == 5)
    world.turn(1.0)
    world.workers[-1].complete(0.6)
    assert world.run().n_completed == 5
    assert {cause for _, cause in idle_s(world)} >= {IdleCause.NO_SUGGESTION}


def test_ctrl_c_waits_for_no_suggestion(
    make_world: Callable[..., World], aside: OutOfProcessSampler
) -> None:
    world = make_world(waits, n_devices=2, n_trials=5, sampler=aside)
    os.kill(aside.pid, signal.SIGSTOP)
    world.turn(2.0)
    world.interrupt()
    assert world.run().is_interrupted
    assert world.stored_states() == ["COMPLETE"] * N_STARTUP
