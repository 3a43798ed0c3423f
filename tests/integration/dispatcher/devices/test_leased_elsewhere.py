"""A container that is restarted while its GPUs are leased to its former self."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import optuna
import pytest

from tests.databases import new_database
from tests.fakes import FakeClock, a_gpu
from tests.hosts import ALIVE, DEAD, with_process
from tests.integration.dispatcher.devices.test_idle import idle_s
from tests.integration.dispatcher.world import World, a_start, completes, sleeps
from tuner.devices.allocation.pool import Lease
from tuner.devices.device import Holder
from tuner.devices.idle_causes import IdleCause
from tuner.domain.attempt import Attempt
from tuner.store.connection.database import open_database
from tuner.store.records.recorder import Recorder

MakeWorld = Callable[..., World]
FORMER_SELF = with_process(DEAD, pid_namespace="1")
ANN = Holder(pid=77, user="ann", command="python", memory_bytes=1)


@pytest.fixture
def former_self(tmp_path: Path) -> Iterator[Recorder]:
    """A dispatcher with GPU 0, whose process cannot be checked from here.

    On SQLite it has to be one of another study: of the same one a start waits before anything else.
    """
    database = open_database(new_database(tmp_path))
    study = optuna.create_study(storage=database.storage, study_name="former")
    clock = FakeClock()
    recorder = Recorder(database, a_start(study._study_id, FORMER_SELF), [a_gpu(0)], clock=clock)
    trial = study.ask()
    attempt = Attempt(
        trial_id=trial._trial_id,
        trial_number=trial.number,
        number=1,
        seed=1,
        leased_at=clock.now().utc,
    )
    lease = Lease(number=1, attempt_id=attempt.id, devices=(a_gpu(0),))
    recorder.lease(attempt, lease, params={}, log_path="/log")
    recorder.commit()
    yield recorder
    database.close()


def test_the_gpu_is_used_once_the_former_self_was_silent_for_a_minute(
    former_self: Recorder, make_world: MakeWorld
) -> None:
    world = make_world(completes, n_devices=1, n_trials=2, host=ALIVE)
    world.turn(55.0)
    assert world.workers == []
    assert "GPU 0 is still leased to the dispatcher on here (pid " in world.said[0]
    assert world.view.snapshots[-1].left_to_others.keys() == {"GPU 0"}
    assert world.run().n_completed == 2
    assert "GPU 0 is leased to no other dispatcher any more." in world.said
    assert world.view.snapshots[-1].left_to_others == {}
    ((key, idle),) = [each for each in idle_s(world).items() if each[0][1] is IdleCause.TAKEN]
    assert key == (0, IdleCause.TAKEN)
    assert 55.0 <= idle <= 70.0


def test_other_gpus_are_used_meanwhile(former_self: Recorder, make_world: MakeWorld) -> None:
    world = make_world(sleeps, n_devices=2, n_trials=None, host=ALIVE)
    world.turn(30.0)
    assert [worker.request.assign.devices for worker in world.workers] == [("GPU 1",)]
    world.turn(40.0)
    assert [worker.request.assign.devices for worker in world.workers[1:]] == [("GPU 0",)]


def test_the_gpu_waits_for_a_former_self_that_lives(
    former_self: Recorder, make_world: MakeWorld
) -> None:
    world = make_world(sleeps, n_devices=1, n_trials=None, host=ALIVE)
    for _ in range(5):
        former_self.beat(world.clock.now().utc, ())
        former_self.commit()
        world.turn(30.0)
    assert world.workers == []
    world.interrupt()
    assert world.run().is_interrupted


def test_a_gpu_that_others_free_waits_for_the_lease_on_it(
    former_self: Recorder, make_world: MakeWorld
) -> None:
    world = make_world(sleeps, n_devices=2, n_trials=None, host=ALIVE, is_polite=True)
    leases = world.recorder.fleet.leases
    world.probe.use(a_gpu(0), ANN)
    world.turn(10.0)
    world.probe.use(a_gpu(0))
    world.turn(10.0)
    assert leases.holders.keys() == {a_gpu(0).id}
    assert [worker.request.assign.devices for worker in world.workers] == [("GPU 1",)]
    world.turn(50.0)
    assert [worker.request.assign.devices for worker in world.workers[1:]] == [("GPU 0",)]
