"""GPUs that somebody else takes are left alone, and taken up when they are free again."""

from __future__ import annotations

import pytest

from tests.fakes import a_gpu
from tests.integration.dispatcher.world import World, completes, sleeps
from tuner.devices.device import Holder

GIB = 1024**3
ANN = Holder(pid=77, user="ann", command="python", memory_bytes=8 * GIB)


@pytest.fixture
def make_polite(make_world):
    def make(*arguments, **keywords) -> World:
        return make_world(*arguments, is_polite=True, **keywords)

    return make


def test_gpu_that_somebody_takes_between_trials_is_left_alone(make_polite):
    world = make_polite(sleeps, n_devices=2, n_trials=None)
    world.turn(1.0)
    world.probe.use(a_gpu(1), ANN)
    world.workers[1].complete()
    world.turn()
    # What our own trial leaves is awaited; what is Ann's is not.
    world.turn(1.0)
    assert len(world.workers) == 2
    assert any("GPU 1 is left alone: python (pid 77, user ann)" in text for text in world.said)
    assert world.view.snapshots[-1].left_to_others.keys() == {"GPU 1"}
    assert world.view.snapshots[-1].idle_devices == ()


def test_gpu_that_was_left_alone_is_taken_up_when_it_is_free(make_polite):
    world = make_polite(sleeps, n_devices=1, n_trials=None)
    world.probe.use(a_gpu(0), ANN)
    world.turn(12.0)
    assert world.workers == []
    world.probe.use(a_gpu(0))
    world.turn(6.0)
    assert len(world.workers) == 1
    assert "GPU 0 is free and taken up." in world.said
    assert world.view.snapshots[-1].left_to_others == {}


def test_study_waits_while_others_have_all_its_gpus(make_polite):
    world = make_polite(completes, n_devices=2, n_trials=3)
    for number in range(2):
        world.probe.use(a_gpu(number), ANN)
    world.inbox.later(60.0, lambda: world.probe.use(a_gpu(1)))
    assert world.run().n_completed == 3
    assert {worker.request.assign.devices for worker in world.workers} == {("GPU 1",)}
