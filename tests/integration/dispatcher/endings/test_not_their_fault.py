"""Ends that are nobody's fault: the fork server's, a batch system's, a full disk's."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from tests.integration.dispatcher.world import FakeWorker, World, completes, sleeps
from tuner.devices.allocation.width import Devices, FixedWidth
from tuner.domain.attempt import Cause, Outcome
from tuner.store.schema.models import AttemptRow

GIB = 1024**3
NO_ROOM = "OSError: [Errno 28] No space left on device"

MakeWorld = Callable[..., World]


def first_ends(end: Callable[[FakeWorker], None]) -> Callable[[FakeWorker], None]:
    """Every trial's first attempt ends so, and its second one completes."""

    def program(worker: FakeWorker) -> None:
        if worker.id.endswith(".1"):
            worker.later(0.1, worker.hello)
            worker.later(0.5, lambda: end(worker))
        else:
            completes(worker)

    return program


def is_told_to_end(worker: FakeWorker) -> None:
    worker.fail("SIGTERM from outside", Outcome.CANCELLED, Cause.SIGNAL)


def is_lost(worker: FakeWorker) -> None:
    worker.exit(255, is_lost=True)


@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        pytest.param(is_lost, Outcome.LOST, id="fork-server"),
        pytest.param(is_told_to_end, Outcome.CANCELLED, id="sigterm"),
        pytest.param(lambda worker: worker.fail(NO_ROOM), Outcome.FAILED, id="disk"),
    ],
)
def test_they_are_tried_again_where_retries_are_none(
    make_world: MakeWorld,
    monkeypatch: pytest.MonkeyPatch,
    end: Callable[[FakeWorker], None],
    outcome: Outcome,
) -> None:
    free = iter(range(GIB, 1000 * GIB, GIB))
    usage = lambda folder: SimpleNamespace(free=next(free))  # noqa: E731
    monkeypatch.setattr("tuner.dispatch.upkeep.disk_space.shutil.disk_usage", usage)
    world = make_world(first_ends(end), n_trials=4, retries=0)
    assert world.run().n_completed == 4
    outcomes = [row.outcome for row in world.rows(AttemptRow)]
    assert sorted(outcomes, key=str) == sorted([outcome, Outcome.COMPLETED] * 4, key=str)


def test_no_trial_starts_on_a_full_disk(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SimpleNamespace(free=0)
    monkeypatch.setattr("tuner.dispatch.upkeep.disk_space.shutil.disk_usage", lambda folder: disk)
    world = make_world(first_ends(lambda worker: worker.fail(NO_ROOM)), n_trials=6, retries=0)
    world.turn_until(lambda: len(world.ended) == 2)
    world.turn(2.0)
    assert [worker.id for worker in world.workers] == ["0.1", "1.1"]
    assert "no trial starts until there is more" in world.said[0]
    disk.free = GIB
    world.turn_until(lambda: len(world.workers) >= 4)
    assert {worker.id for worker in world.workers[2:4]} == {"0.2", "1.2"}


def test_group_whose_rank_was_told_to_end_is_tried_again(make_world: MakeWorld) -> None:
    pair = Devices(n_devices=2)
    wide = {"rule": FixedWidth(width=pair), "widths": (pair,), "is_ddp": True}
    world = make_world(sleeps, n_devices=2, n_trials=1, **wide)
    world.turn(1.0)
    zero, one = world.workers
    zero.fail("RuntimeError: Connection closed by peer")
    is_told_to_end(one)
    world.turn_until(lambda: len(world.workers) == 4)
    assert world.endings == [("0.1", "cancelled")]


def test_failure_while_the_study_stops_waits_for_the_next_start(make_world: MakeWorld) -> None:
    world = make_world(sleeps, n_devices=2, n_trials=2, retries=1)
    world.turn(1.0)
    world.interrupt()
    world.turn()
    world.workers[0].exit(-9)
    is_told_to_end(world.workers[1])
    assert world.run().is_interrupted
    assert world.stored_states() == ["WAITING"] * 2


def test_attempts_that_were_lost_cost_no_retry_after_a_start(make_world: MakeWorld) -> None:
    for _ in range(3):
        world = make_world(sleeps, n_devices=1, n_trials=1, retries=1)
        world.turn(1.0)
        world.close()  # As kill -9 does.
    check_that_one_retry_is_left(make_world)


def test_failures_before_a_start_cost_retries_after_it(make_world: MakeWorld) -> None:
    first = make_world(
        lambda worker: (crashes if worker.id == "0.1" else sleeps)(worker),
        n_devices=1,
        n_trials=1,
        retries=1,
    )
    first.turn_until(lambda: len(first.workers) == 2)
    first.close()
    last = make_world(crashes, n_devices=1, n_trials=1, retries=1)
    assert last.run().n_failed == 1
    assert last.endings == [("0.3", "failed")]


def test_full_disks_before_a_start_cost_no_retry_after_it(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = iter(range(GIB, 1000 * GIB, GIB))
    usage = lambda folder: SimpleNamespace(free=next(free))  # noqa: E731
    monkeypatch.setattr("tuner.dispatch.upkeep.disk_space.shutil.disk_usage", usage)

    def meets_a_full_disk(worker: FakeWorker) -> None:
        worker.later(0.1, worker.hello)
        if worker.id in ("0.1", "0.2"):
            worker.later(0.5, lambda: worker.fail(NO_ROOM))

    first = make_world(meets_a_full_disk, n_devices=1, n_trials=1, retries=1)
    first.turn_until(lambda: len(first.workers) == 3)
    first.close()
    check_that_one_retry_is_left(make_world)


def check_that_one_retry_is_left(make_world: MakeWorld) -> None:
    """After a start the fourth attempt of a trial may fail; the fifth one completes."""
    last = make_world(
        lambda worker: (completes if worker.id == "0.5" else crashes)(worker),
        n_devices=1,
        n_trials=1,
        retries=1,
    )
    assert last.run().n_completed == 1
    assert last.endings == [("0.4", "failed"), ("0.5", "completed")]


def crashes(worker: FakeWorker) -> None:
    worker.later(0.1, worker.hello)
    worker.later(0.5, lambda: worker.exit(-11))


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: unable to write to file </torch_12_34_0>: No space left on device (28)",
        NO_ROOM,
    ],
    ids=["shared-memory", "elsewhere"],
)
def test_trial_that_finds_no_room_elsewhere_has_failed_where_retries_are_none(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    usage = lambda folder: SimpleNamespace(free=100 * GIB)  # noqa: E731
    monkeypatch.setattr("tuner.dispatch.upkeep.disk_space.shutil.disk_usage", usage)

    def program(worker: FakeWorker) -> None:
        worker.later(0.1, worker.hello)
        worker.later(0.5, lambda: worker.fail(text))

    world = make_world(program, n_devices=1, n_trials=2, retries=0)
    assert world.run().n_failed == 2
    assert "--shm-size" in world.ended[-1].ending.detail
