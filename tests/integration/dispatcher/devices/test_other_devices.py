"""Devices that a study gets and gives up while it runs."""

from __future__ import annotations

from tests.fakes import a_gpu
from tests.integration.dispatcher.test_commands import NOW, ask
from tests.integration.dispatcher.world import World, completes, sleeps
from tuner.devices.allocation.width import Devices, FixedWidth
from tuner.devices.device import Holder
from tuner.store.records.commands import REFUSED, Addressee, Command, Order, insert_command
from tuner.store.schema.models import EventRow


def set_devices(world: World, value: object) -> None:
    ask(world, Order.SET, devices=value)


def places(world: World) -> list[tuple[str, ...]]:
    return [worker.request.assign.devices for worker in world.workers]


def events(world: World, name: str) -> list[str]:
    return [row.detail for row in world.rows(EventRow) if row.name == name]


def test_dropped_device_gets_no_trial_and_is_given_back_when_its_trial_has_ended(make_world):
    world = make_world(sleeps, n_devices=2, n_trials=6)
    for device in world.probe.devices():
        world.locks.acquire(device)
    world.turn(1.0)
    set_devices(world, [1])
    world.turn(3.0)
    assert "It has GPU 1 now; GPU 0 gets no trial any more" in world.said[-1]
    # What runs goes on.
    assert world.workers[0].verdicts == []
    assert world.locks.held == {"GPU 0", "GPU 1"}
    world.workers[0].complete()
    world.turn(1.0)
    assert world.locks.held == {"GPU 1"}
    world.program = completes
    world.workers[1].complete()
    assert world.run().n_completed == 6
    assert places(world) == [("GPU 0",)] + [("GPU 1",)] * 5
    assert world.stored_states() == ["COMPLETE"] * 6


def test_added_device_is_claimed_and_used_at_once(make_world):
    world = make_world(sleeps, n_devices=1, n_more_devices=1, n_trials=2)
    world.turn(1.0)
    assert len(world.workers) == 1
    set_devices(world, [0, 1])
    world.turn(3.0)
    assert places(world) == [("GPU 0",), ("GPU 1",)]
    assert world.locks.held == {"GPU 0", "GPU 1"}
    (detail,) = events(world, "set")
    assert detail.startswith("Changed: devices=[0, 1] (asked for by joe@box).")
    for worker in world.workers:
        worker.complete()
    assert world.run().n_completed == 2


def test_use_of_our_own_trials_keeps_no_device_out_under_auto(make_world):
    world = make_world(sleeps, n_devices=1, n_more_devices=2, n_trials=3)
    world.turn(1.0)
    own, foreign = (
        Holder(pid=pid, user="me", command="python", memory_bytes=2**33)
        for pid in (world.workers[0].pid, 4242)
    )
    world.probe.use(a_gpu(0), own)
    world.probe.use(a_gpu(2), foreign)
    set_devices(world, "auto")
    world.turn(3.0)
    assert places(world) == [("GPU 0",), ("GPU 1",)]
    # It is taken up when it is free: the study gives way now, as one that began with `auto`.
    world.probe.use(a_gpu(2))
    world.turn(6.0)
    assert places(world)[2:] == [("GPU 2",)]


def test_what_cannot_be_had_is_refused_and_nothing_changes(make_world):
    world = make_world(sleeps, n_devices=1, n_more_devices=2, n_trials=4)
    world.turn(1.0)
    world.locks.acquire(a_gpu(0))
    world.locks.elsewhere = {"GPU 2"}
    for value, reason in (
        ([7], "7 is not here"),
        ([0, 1, 2], "GPU 2 (GPU-00000002-0000-4000-8000-000000000000) is not free"),
        ("gpu", "devices is 'gpu'. Allowed: auto, all"),
    ):
        set_devices(world, value)
        world.turn(3.0)
        assert world.said[-1].startswith(f"Not changed: devices={value} (asked for by joe@box). ")
        assert reason in world.said[-1]
        assert events(world, REFUSED)[-1] == world.said[-1]
    assert world.locks.held == {"GPU 0"}
    assert places(world) == [("GPU 0",)]
    assert events(world, "set") == []


def test_devices_that_no_trial_fits_on_are_refused(make_world):
    two = Devices(n_devices=2)
    world = make_world(sleeps, n_devices=2, n_trials=2, rule=FixedWidth(width=two), widths=(two,))
    world.turn(1.0)
    set_devices(world, [0])
    world.turn(3.0)
    assert "No trial fits." in world.said[-1]
    world.workers[0].complete()
    world.turn(1.0)
    assert places(world) == [("GPU 0", "GPU 1")] * 2


def test_trial_that_was_too_wide_starts_on_more_devices(make_world):
    two = Devices(n_devices=2)
    world = make_world(
        completes,
        n_devices=2,
        n_more_devices=1,
        n_trials=1,
        rule=FixedWidth(width=two),
        widths=(two, Devices(n_devices=1)),
    )
    world.probe.lose(a_gpu(0))
    world.turn(1.0)
    assert any("is wider than what is left here" in text for text in world.said)
    set_devices(world, [1, 2])
    world.turn(3.0)
    assert world.run().n_completed == 1
    assert places(world) == [("GPU 1", "GPU 2")]


def test_gpus_and_cpu_slots_take_turns(make_world):
    world = make_world(sleeps, n_devices=1, n_trials=6)
    world.turn(1.0)
    set_devices(world, "cpu:2")
    world.turn(3.0)
    assert places(world) == [("GPU 0",), ("cpu:0",), ("cpu:1",)]
    set_devices(world, [0])
    world.turn(3.0)
    world.program = completes
    for worker in world.workers:
        worker.complete()
    assert world.run().n_completed == 6
    assert places(world)[3:] == [("GPU 0",)] * 3


def test_device_that_comes_back_while_its_trial_runs_is_kept(make_world):
    world = make_world(sleeps, n_devices=2, n_trials=4)
    for device in world.probe.devices():
        world.locks.acquire(device)
    world.turn(1.0)
    set_devices(world, [1])
    world.turn(3.0)
    set_devices(world, [0, 1])
    world.turn(3.0)
    world.workers[0].complete()
    world.turn(1.0)
    assert world.locks.held == {"GPU 0", "GPU 1"}
    assert places(world) == [("GPU 0",), ("GPU 1",), ("GPU 0",)]


def test_command_to_another_dispatcher_is_not_heard(make_world):
    world = make_world(sleeps, n_devices=2, n_trials=2)
    world.turn(1.0)
    other = Command(
        order=Order.SET,
        arguments={"devices": [1]},
        asked_by="joe@box",
        to=Addressee(dispatcher_id=10_000),
    )
    with world.database.engine.begin() as connection:
        insert_command(connection, world.search.study_id, other, at=NOW)
    world.turn(3.0)
    assert not world.said
    assert events(world, "set") == []
