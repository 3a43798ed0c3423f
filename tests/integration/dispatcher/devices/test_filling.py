"""Devices are kept busy, none is given twice, and exactly so many trials run."""

from __future__ import annotations

import itertools
import re

import pytest

from tests.fakes import a_gpu
from tests.integration.dispatcher.world import FakeWorker, completes, sleeps
from tuner.devices.device import DeviceStatus
from tuner.domain.budget import Budget
from tuner.errors import DeviceError
from tuner.search.samplers.resumable import GridSampler
from tuner.search_spaces import parse_space
from tuner.store.schema.models import AttemptRow, LeaseRow

GIB = 1024**3


@pytest.mark.parametrize(("n_devices", "n_trials"), [(1, 3), (2, 4), (3, 7), (4, 2)])
def test_exactly_the_budget_is_run_on_all_devices(make_world, n_devices, n_trials):
    world = make_world(n_devices=n_devices, n_trials=n_trials)
    result = world.run()
    assert (result.n_completed, result.reason) == (n_trials, f"budget reached: {n_trials} trials")
    assert not result.is_interrupted
    assert world.stored_states() == ["COMPLETE"] * n_trials
    assert world.n_running_at_most == min(n_devices, n_trials)


def test_trials_reach_optuna_with_values_params_and_curves(make_world):
    world = make_world(n_trials=2)
    world.run()
    for worker, trial in zip(world.workers, world.stored_trials(), strict=True):
        assert trial.params == worker.request.assign.params
        assert (trial.value, trial.intermediate_values) == (0.5, {1: 0.5})
        assert 0 <= trial.params["x"] <= 1
    assert len({trial.params["x"] for trial in world.stored_trials()}) == 2


def test_no_device_is_leased_twice_at_once(make_world):
    world = make_world(n_devices=3, n_trials=9)
    world.run()
    leases = world.rows(LeaseRow)
    assert len(leases) == 9
    for device_id in {lease.device_id for lease in leases}:
        mine = sorted((x.leased_at, x.released_at) for x in leases if x.device_id == device_id)
        assert all(earlier[1] <= later[0] for earlier, later in itertools.pairwise(mine))
    assert {lease.held_device_id for lease in leases} == {None}


def test_each_worker_sees_its_own_device_only(make_world):
    world = make_world(sleeps, n_devices=2)
    world.turn()
    visible = [worker.request.environment["CUDA_VISIBLE_DEVICES"] for worker in world.workers]
    assert visible == [a_gpu(0).id, a_gpu(1).id]


def test_devices_are_filled_in_the_tick_in_which_they_become_free(make_world):
    world = make_world(sleeps, n_devices=1)
    world.turn(1.0)
    world.workers[0].complete()
    world.turn()
    assert len(world.workers) == 2


def test_intent_is_in_the_database_before_the_process_starts(make_world):
    world = make_world(n_devices=1, n_trials=1)
    seen = []

    def program(worker: FakeWorker) -> None:
        seen.extend(row.state.value for row in world.rows(AttemptRow))
        seen.extend(world.stored_states())
        completes(worker)

    world.program = program
    world.run()
    assert seen == ["leased", "RUNNING"]


def test_device_is_used_again_only_once_its_memory_is_back(make_world):
    world = make_world(sleeps, n_devices=1)
    device = world.probe.devices()[0]
    world.probe.use(device, memory_used_bytes=1 * GIB)
    world.turn(1.0)
    world.probe.use(device, memory_used_bytes=40 * GIB)
    world.workers[0].complete()
    world.turn(5.0)
    assert len(world.workers) == 1
    assert world.endings == [("0.1", "completed")]
    world.probe.use(device, memory_used_bytes=1 * GIB)
    world.turn(0.0)
    assert len(world.workers) == 2


def test_people_are_told_once_when_memory_does_not_come_back(make_world):
    world = make_world(sleeps, n_devices=1)
    device = world.probe.devices()[0]
    world.turn(1.0)
    world.probe.use(device, memory_used_bytes=40 * GIB)
    world.workers[0].complete()
    world.turn(90.0)
    (text,) = world.said
    assert "GPU 0 waits: memory of trial 0 is not back" in text


def test_device_lost_during_a_trial_gets_no_more(make_world):
    world = make_world(sleeps, n_devices=2, n_trials=5)
    world.turn(1.0)
    lost, alive = world.workers
    world.probe.lose(world.probe.devices()[0])
    lost.exit(1)
    world.turn()
    assert any(
        "GPU 0" in text and "It gets no trials until it is back" in text for text in world.said
    )
    assert len(world.workers) == 2
    world.program = completes
    alive.complete()
    world.run()
    assert {w.request.assign.devices for w in world.workers[2:]} == {("GPU 1",)}
    assert len(world.workers) == 5


def test_device_lost_while_it_is_idle_gets_no_trial(make_world):
    world = make_world(n_devices=2, n_trials=4)
    world.probe.lose(world.probe.devices()[0])
    world.run()
    assert {worker.request.assign.devices for worker in world.workers} == {("GPU 1",)}
    assert world.stored_states() == ["COMPLETE"] * 4


def test_study_with_no_device_left_fails(make_world):
    world = make_world(n_devices=1, n_trials=4)
    world.probe.lose(world.probe.devices()[0])
    with pytest.raises(DeviceError, match="No device of the study is left"):
        world.run()
    assert world.workers == []
    assert set(world.stored_states()) <= {"WAITING"}


def test_neighbour_on_the_device_does_not_hold_it_back(make_world):
    world = make_world(n_devices=1, n_trials=3)
    busy = DeviceStatus(memory_used_bytes=30 * GIB, utilization_pct=100)
    world.probe.set_status(world.probe.devices()[0], busy)
    assert world.run().n_completed == 3


def test_grid_ends_when_every_point_was_tried(make_world):
    space = parse_space({"x": {"type": "categorical", "choices": [1, 2, 3, 4, 5]}})
    sampler = GridSampler({"x": [1, 2, 3, 4, 5]}, seed=0)
    world = make_world(n_devices=2, n_trials=None, space=space, sampler=sampler)
    result = world.run()
    assert result.reason == "every configuration of the space was tried"
    assert sorted(trial.params["x"] for trial in world.stored_trials()) == [1, 2, 3, 4, 5]


def test_time_budget_starts_nothing_after_its_end_and_lets_trials_end(make_world):
    # Two trials tell too little of how long one takes.
    world = make_world(n_devices=1, budget=Budget(time_s=1.5))
    start_s = world.now_s
    result = world.run()
    assert result.reason == "budget reached: 2 s"
    assert set(world.stored_states()) == {"COMPLETE"}
    assert len(world.workers) == 2
    assert 1.5 <= world.now_s - start_s < 3.0


def test_time_budget_starts_nothing_that_cannot_finish(make_world):
    world = make_world(n_devices=2, budget=Budget(time_s=3.5))
    start_s = world.now_s
    result = world.run()
    assert re.fullmatch(
        r"budget reached: 0\.\d+ s of 4 s are left, and a trial takes 1(\.\d+)? s", result.reason
    )
    assert set(world.stored_states()) == {"COMPLETE"}
    assert len(world.workers) == 6
    assert 3.0 <= world.now_s - start_s <= 3.5


def test_people_hear_why_no_new_trial_starts_while_others_run(make_world):
    lasting = iter([1.0, 1.0, 1.0, 6.0, 1.0, 1.0, 1.0])

    def program(worker):
        worker.later(0.1, worker.hello)
        worker.later(next(lasting), worker.complete)

    world = make_world(program, n_devices=2, budget=Budget(time_s=5.5))
    world.run()
    assert sum("No new trial starts: " in text for text in world.said) == 1
    assert len(world.workers) < 8


def test_later_start_knows_how_long_trials_take(make_world):
    make_world(n_devices=1, budget=Budget(time_s=4.5)).run()
    again = make_world(n_devices=1, budget=Budget(time_s=4.9))
    again.run()
    assert again.workers == []


def test_device_hours_count_every_device(make_world):
    world = make_world(n_devices=4, budget=Budget(device_hours=4 * 10 / 3600))
    start_s = world.now_s
    assert "device-hours" in world.run().reason
    assert 8 <= world.now_s - start_s <= 10.5


def test_time_budget_counts_earlier_starts(make_world):
    make_world(n_devices=1, budget=Budget(time_s=5.5)).run()
    again = make_world(n_devices=1, budget=Budget(time_s=5.5))
    again.run()
    assert again.workers == []


def test_trial_that_the_user_enqueued_is_run_first(make_world):
    world = make_world(n_devices=1, n_trials=2)
    world.search.study.enqueue_trial({"x": 0.25})
    world.run()
    assert world.stored_trials()[0].params["x"] == 0.25
    assert world.workers[0].id == "0.1"
    assert len(world.workers) == 2
