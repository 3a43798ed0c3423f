"""A trial that runs out of memory gets room once, and is infeasible then."""

from __future__ import annotations

import pytest

from tests.integration.dispatcher.test_commands import ask
from tests.integration.dispatcher.world import FakeWorker, completes, sleeps
from tuner.devices.allocation.width import WHOLE, Devices, FixedWidth, Share
from tuner.domain.attempt import Cause, Outcome
from tuner.store.records.commands import Order


def runs_out_of_memory(worker: FakeWorker) -> None:
    worker.later(0.1, worker.hello)
    worker.later(
        1.0,
        lambda: worker.fail("CUDA out of memory", Outcome.OUT_OF_MEMORY, Cause.DEVICE_MEMORY),
    )


@pytest.mark.parametrize("n_devices", [1, 2])
@pytest.mark.parametrize("retries", [0, 3])
def test_out_of_memory_is_tried_once_more_then_infeasible(make_world, n_devices, retries):
    world = make_world(runs_out_of_memory, n_devices=n_devices, n_trials=1, retries=retries)
    world.run()
    assert world.endings == [("0.1", "out_of_memory"), ("0.2", "out_of_memory")]
    assert [each.will_retry for each in world.ended] == [True, False]
    assert world.stored_states() == ["PRUNED"]
    (trial,) = world.stored_trials()
    assert trial.constraints == {"tuner:device_memory": 1.0}
    # On the other one, where there is another one.
    places = [worker.request.assign.devices[0] for worker in world.workers]
    assert places == ["GPU 0", f"GPU {n_devices - 1}"]


def test_trial_that_has_memory_the_second_time_completes(make_world):
    def program(worker: FakeWorker) -> None:
        is_first = worker.request.assign.attempt_number == 1
        (runs_out_of_memory if is_first else completes)(worker)

    world = make_world(program, n_devices=2, n_trials=4)
    assert world.run().n_completed == 4
    assert [outcome for _, outcome in world.endings].count("out_of_memory") == 4


def test_room_is_given_also_after_a_pause(make_world):
    world = make_world(runs_out_of_memory, n_devices=1, n_trials=2)
    world.turn_until(lambda: len(world.ended) == 1)
    ask(world, Order.PAUSE)
    world.turn_until(lambda: any("Paused" in text for text in world.said))
    ask(world, Order.RESUME)
    world.run()
    assert len(world.workers) == 4
    assert world.stored_states() == ["PRUNED"] * 2


def test_wide_trial_out_of_memory_stays_wide(make_world):
    two = Devices(n_devices=2)
    world = make_world(
        runs_out_of_memory,
        n_devices=4,
        n_trials=1,
        rule=FixedWidth(width=two),
        widths=(two,),
    )
    world.run()
    places = [worker.request.assign.devices for worker in world.workers]
    assert places == [("GPU 0", "GPU 1"), ("GPU 2", "GPU 3")]


def test_room_that_was_given_before_a_restart_is_not_given_again(make_world):
    def program(worker: FakeWorker) -> None:
        is_first = worker.request.assign.attempt_number == 1
        (runs_out_of_memory if is_first else sleeps)(worker)

    first = make_world(program, n_devices=1, n_trials=1)
    first.turn_until(lambda: len(first.workers) == 2)
    first.interrupt()
    first.run()
    assert first.endings == [("0.1", "out_of_memory"), ("0.2", "cancelled")]
    second = make_world(runs_out_of_memory, n_devices=1, n_trials=1)
    second.run()
    assert second.endings == [("0.3", "out_of_memory")]
    assert second.stored_states() == ["PRUNED"]


def test_trial_that_ran_out_before_a_restart_shares_its_gpu_with_nobody(make_world):
    part = Share(parts=WHOLE // 2)
    terms = {"n_devices": 1, "rule": FixedWidth(width=part), "widths": (part,)}

    def program(worker: FakeWorker) -> None:
        (runs_out_of_memory if worker.trial_number == 0 else sleeps)(worker)

    first = make_world(program, n_trials=2, **terms)
    first.turn(3.0)
    assert first.endings == [("0.1", "out_of_memory")]
    first.interrupt()
    first.run()
    second = make_world(sleeps, n_trials=2, **terms)
    second.turn(3.0)
    assert [worker.id for worker in second.workers] == ["0.2"]
