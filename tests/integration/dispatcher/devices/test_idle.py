"""Why devices stood idle, as it is stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from types import SimpleNamespace

import pytest
import sqlalchemy as sa

from tests.integration.dispatcher.database_faults import DiskFull
from tests.integration.dispatcher.devices.test_quarantine import Clinic, breaks_gpu_0
from tests.integration.dispatcher.test_commands import ask
from tests.integration.dispatcher.world import FakeWorker, World, completes, sleeps
from tuner.devices.allocation.width import Devices, FixedWidth
from tuner.devices.device import Holder
from tuner.devices.idle_causes import IdleCause
from tuner.search.asked_trial import AskedTrial
from tuner.store.records.commands import Order
from tuner.store.schema.models import DeviceRow, IdleRow, table_of

MakeWorld = Callable[..., World]
Seconds = dict[tuple[int, IdleCause], float]


def idle_s(world: World) -> Seconds:
    """Seconds by number of the GPU and cause; no device is idle twice at a time."""
    query = (
        sa.select(table_of(IdleRow), DeviceRow.number)
        .join(DeviceRow, DeviceRow.id == IdleRow.device_id)
        .order_by(DeviceRow.number, IdleRow.began_at)
    )
    with world.database.engine.connect() as connection:
        rows = connection.execute(query).all()
    for before, after in pairwise(rows):
        assert before.number != after.number or before.ended_at <= after.began_at
    found: Counter[tuple[int, IdleCause]] = Counter()
    for row in rows:
        found[row.number, row.cause] += (row.ended_at - row.began_at) / timedelta(seconds=1)
    return dict(found)


def test_a_device_without_a_trial_at_the_end_has_nothing_left(make_world: MakeWorld) -> None:
    def program(worker: FakeWorker) -> None:
        worker.later(0.1, worker.hello)
        worker.later(10.0 if worker.trial_number == 0 else 4.0, worker.complete)

    world = make_world(program, n_devices=2, n_trials=2)
    world.run()
    assert idle_s(world) == {(1, IdleCause.NOTHING_LEFT): 6.0}


def test_asking_is_no_time_of_a_lease(make_world: MakeWorld) -> None:
    world = make_world(completes, n_devices=2, n_trials=2)
    ask = world.search.ask

    def slowly() -> AskedTrial | None:
        world.clock.advance(3.0)
        return ask()

    world.search.ask = slowly  # type: ignore[method-assign]
    world.run()
    found = idle_s(world)
    # The second device waits for both suggestions.
    assert found[0, IdleCause.NO_SUGGESTION] == 3.0
    assert found[1, IdleCause.NO_SUGGESTION] == 6.0
    begin = min(each.attempt.leased_at for each in world.started)
    leased = [(each.attempt.leased_at - begin).total_seconds() for each in world.started]
    assert leased == [0.0, 3.0]


def test_a_wide_trial_gathers_its_devices(make_world: MakeWorld) -> None:
    world = make_world(
        completes,
        n_devices=3,
        n_trials=3,
        rule=FixedWidth(width=Devices(n_devices=2)),
        widths=(Devices(n_devices=2),),
    )
    world.run()
    # Two are at work, one after the other waits for one of them, until the last trial has begun.
    found = idle_s(world)
    assert 2.0 <= found[2, IdleCause.GATHERING] < 3.0
    assert (2, IdleCause.NO_SUGGESTION) not in found


def test_a_pause_is_told(make_world: MakeWorld) -> None:
    world = make_world(completes, n_devices=2, n_trials=40)
    world.turn(3.0)
    ask(world, Order.PAUSE)
    world.turn(60.0)
    world.interrupt()
    world.run()
    found = idle_s(world)
    assert min(found[number, IdleCause.PAUSED] for number in (0, 1)) >= 50.0


def test_a_database_that_is_away_is_told(make_world: MakeWorld) -> None:
    world = make_world(completes, n_devices=1, n_trials=40)
    world.turn(3.0)
    with DiskFull(world.database):
        world.turn(30.0)
    world.turn_until(lambda: IdleCause.DATABASE not in world.dispatcher._usage.causes.values())
    world.interrupt()
    world.run()
    assert idle_s(world)[0, IdleCause.DATABASE] >= 10.0


def test_a_full_disk_is_told(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimpleNamespace(free=0)
    monkeypatch.setattr("tuner.dispatch.upkeep.disk_space.shutil.disk_usage", lambda folder: disk)

    def program(worker: FakeWorker) -> None:
        if worker.request.assign.attempt_number > 1:
            completes(worker)
            return
        worker.later(0.1, worker.hello)
        worker.later(0.5, lambda: worker.fail("OSError: [Errno 28] No space left on device"))

    world = make_world(program, n_devices=2, n_trials=2)
    world.turn(3.0)
    disk.free = 2**30
    world.run()
    found = idle_s(world)
    assert min(found[number, IdleCause.DISK_FULL] for number in (0, 1)) >= 2.0
    assert not any(cause is IdleCause.NO_SUGGESTION for _, cause in found)


def test_devices_that_others_take_are_told(make_world: MakeWorld) -> None:
    world = make_world(sleeps, n_devices=2, n_trials=4, is_polite=True)
    gpu = world.probe.devices()[1]
    world.probe.use(gpu, Holder(pid=7, user="ann", command="python", memory_bytes=2**34))
    world.turn(20.0)
    world.interrupt()
    world.run()
    assert idle_s(world)[1, IdleCause.TAKEN] >= 20.0


def test_a_device_that_is_kept_apart_is_told(make_world: MakeWorld) -> None:
    world = make_world(breaks_gpu_0, n_devices=2, n_trials=5, quarantine=Clinic())
    world.run()
    found = idle_s(world)
    assert found[0, IdleCause.QUARANTINED] >= 2.0
    assert (0, IdleCause.NO_SUGGESTION) not in found


def test_a_lost_device_is_told(make_world: MakeWorld) -> None:
    def program(worker: FakeWorker) -> None:
        if worker.request.assign.devices == ("GPU 0",):
            world.probe.lose(world.probe.devices()[0])
        completes(worker)

    world = make_world(program, n_devices=2, n_trials=6)
    world.run()
    assert idle_s(world)[0, IdleCause.LOST] >= 2.0


def test_what_lasts_is_stored_while_it_lasts(make_world: MakeWorld) -> None:
    world = make_world(sleeps, n_devices=2, n_trials=1)
    world.turn(11.0)
    assert idle_s(world)[1, IdleCause.NOTHING_LEFT] >= 5.0
