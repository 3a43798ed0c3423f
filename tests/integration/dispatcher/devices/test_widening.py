"""Trials that continue on more devices once nothing waits: when, on how many, and what then."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.fakes import a_gpu
from tests.integration.dispatcher.test_commands import ask
from tests.integration.dispatcher.world import FakeWorker, Program, World
from tests.unit.checkpoints.test_scan import save
from tuner.checkpoints.layout import newest_whole, step_of
from tuner.devices.allocation.width import ONE, Devices, FixedWidth
from tuner.devices.device import Holder
from tuner.domain.attempt import Cause, Outcome
from tuner.domain.budget import Budget
from tuner.domain.messages import Action
from tuner.store.records.commands import Order
from tuner.store.schema.models import AttemptRow, EventRow, LeaseRow

N_STEPS = 100
#: Of a step on one device.
STEP_S = 2.0


def trains(
    *,
    long: frozenset[int] = frozenset({0}),
    saves: bool = True,
    is_faster: bool = True,
    counts_on: bool = True,
    wide_fails: bool = False,
    start_s: float = 0.5,
    seen: list[tuple[int, int]] | None = None,
) -> Program:
    """Programs that go on from what they saved; all but the long ones are at their end at once."""

    def program(worker: FakeWorker) -> None:
        folder = Path(worker.request.assign.checkpoint_dir)
        n_ranks = len(worker.request.assign.devices)
        is_wide = worker.request.assign.attempt_number > 1
        newest = newest_whole(folder) if counts_on else None
        done = 0 if newest is None else step_of(newest)
        pace_s = STEP_S / (n_ranks if is_faster else 1)
        if worker.trial_number not in long:
            done, pace_s = N_STEPS - 1, 0.1

        def end(outcome: Outcome, **said: object) -> None:
            for each in worker_ranks(worker):
                each.finish(outcome, **said)
                each.exit(0)

        def step(number: int) -> None:
            told = {verdict.action for verdict in worker.verdicts} - {Action.CONTINUE}
            if told:
                end(Outcome.CANCELLED, cause=Cause.INTERRUPTED, detail="told")
            elif number > N_STEPS:
                end(Outcome.COMPLETED, values={World.objective: float(number)})
            else:
                if saves:
                    folder.mkdir(parents=True, exist_ok=True)
                    save(folder, number, at_s=worker._world.clock.now().utc.timestamp())
                if seen is not None:
                    seen.append((worker.trial_number, number))
                worker.report(number, float(number))
                worker.later(pace_s, lambda: step(number + 1))

        worker.later(0.1, worker.hello)
        if worker.rank:
            return
        if wide_fails and is_wide and n_ranks > 1:
            worker.later(0.2, lambda: worker.fail("RuntimeError: one rank only"))
        else:
            worker.later(start_s, lambda: step(done + 1))

    return program


def worker_ranks(worker: FakeWorker) -> list[FakeWorker]:
    return [each for each in worker._world.workers if each.id == worker.id]


@pytest.fixture
def widening(make_world: Callable[..., World]) -> Callable[..., World]:
    def make(program: Program, **terms: object) -> World:
        defaults: dict[str, object] = {"n_devices": 4, "n_trials": 3, "widens": True}
        return make_world(program, is_ddp=True, **{**defaults, **terms})

    return make


def widths(world: World, number: int = 0) -> list[int]:
    """Of the attempts of a trial, in their order."""
    found = [w for w in world.workers if w.trial_number == number and w.rank == 0]
    return [len(each.request.assign.devices) for each in found]


def outcomes(world: World, number: int = 0) -> list[str]:
    ids = {each.id for each in world.workers if each.trial_number == number}
    return [outcome for attempt_id, outcome in world.endings if attempt_id in ids]


def test_the_last_trial_goes_on_on_all_devices_and_repeats_no_step(widening) -> None:
    seen: list[tuple[int, int]] = []
    world = widening(trains(seen=seen))
    result = world.run()
    assert (result.n_completed, result.n_failed) == (3, 0)
    assert widths(world) == [1, 4]
    assert outcomes(world) == ["paused", "completed"]
    assert [step for number, step in seen if number == 0] == list(range(1, N_STEPS + 1))
    trial = world.stored_trials()[0]
    assert sorted(trial.intermediate_values) == list(range(1, N_STEPS + 1))
    leases = world.rows(LeaseRow)
    assert all(lease.released_at is not None for lease in leases)
    first, *wide = [lease for lease in leases if lease.attempt_id in _attempts_of(world, 0)]
    assert len({lease.device_id for lease in wide}) == 4
    assert all(lease.leased_at >= first.released_at for lease in wide)
    with world.database.engine.connect() as connection:
        events = connection.execute(sa.select(EventRow.name, EventRow.detail)).all()
    assert ("widened", "trial 0: No other trial waits: it continues on 4 devices, not 1.") in events


def _attempts_of(world: World, number: int) -> set[int]:
    trial_id = world.stored_trials()[number]._trial_id
    return {row.id for row in world.rows(AttemptRow) if row.trial_id == trial_id}


def test_without_the_key_nobody_is_widened(widening) -> None:
    world = widening(trains(), widens=False)
    assert world.run().n_completed == 3
    assert widths(world) == [1]


def test_devices_are_shared_among_those_that_run(widening) -> None:
    world = widening(trains(long=frozenset({0, 1})), n_devices=5)
    assert world.run().n_completed == 3
    assert widths(world, 0)[:2] == [1, 2]
    assert widths(world, 1)[:2] == [1, 2]


def test_wide_trials_double(widening) -> None:
    two = Devices(n_devices=2)
    world = widening(trains(), n_devices=7, rule=FixedWidth(width=two), widths=(two,))
    assert world.run().n_completed == 3
    assert widths(world) == [2, 4]


def test_nobody_is_widened_while_trials_are_left(widening) -> None:
    world = widening(trains(long=frozenset({0, 9})), n_trials=10, n_devices=2)
    world.turn_until(lambda: len(world.started) == 10)
    assert widths(world) == [1]


def test_a_trial_without_checkpoints_stays_as_it_is_and_people_hear_once(widening) -> None:
    world = widening(trains(saves=False))
    assert world.run().n_completed == 3
    assert widths(world) == [1]
    assert sum("has saved no checkpoint, so that it is not widened" in t for t in world.said) == 1


def test_a_trial_near_its_end_is_left_alone(widening) -> None:
    def program(worker: FakeWorker) -> None:
        if worker.trial_number == 0:
            folder = Path(worker.request.assign.checkpoint_dir)
            folder.mkdir(parents=True, exist_ok=True)
            save(folder, N_STEPS - 8)
        trains(start_s=10.0)(worker)

    world = widening(program)
    assert world.run().n_completed == 3
    assert widths(world) == [1]


def test_where_no_length_is_known_nobody_is_widened(widening) -> None:
    world = widening(trains(), n_trials=1)
    assert world.run().n_completed == 1
    assert widths(world) == [1]


def test_one_that_is_no_faster_is_the_last_to_be_widened(widening) -> None:
    world = widening(trains(is_faster=False, long=frozenset({0, 1})), n_trials=4, n_devices=3)
    assert world.run().n_completed == 4
    assert sorted([widths(world, 0), widths(world, 1)]) == [[1], [1, 2]]
    assert any("No other trial is widened." in text for text in world.said)


def test_a_program_that_begins_again_is_told_of(widening) -> None:
    world = widening(trains(counts_on=False))
    assert world.run().n_completed == 3
    assert widths(world) == [1, 4]
    assert any("does not continue from its checkpoint" in text for text in world.said)
    assert sorted(world.stored_trials()[0].intermediate_values) == list(range(1, N_STEPS + 1))


def test_one_that_cannot_start_wider_goes_on_as_it_was(widening) -> None:
    seen: list[tuple[int, int]] = []
    world = widening(trains(wide_fails=True, seen=seen), retries=0)
    result = world.run()
    assert (result.n_completed, result.n_failed) == (3, 0)
    assert widths(world) == [1, 4, 1]
    assert [step for number, step in seen if number == 0] == list(range(1, N_STEPS + 1))
    assert any("could not continue on 4 devices" in text for text in world.said)


def test_devices_that_somebody_takes_meanwhile_are_done_without(widening) -> None:
    world = widening(trains(), is_polite=True, n_devices=2)
    world.turn_until(lambda: any(each.attempt.ending for each in world.ended) and is_told(world))
    world.probe.use(
        a_gpu(1), Holder(pid=99, user="ann", memory_bytes=5 * 1024**3, command="python")
    )
    assert world.run().n_completed == 3
    assert widths(world) == [1, 1]
    assert outcomes(world) == ["paused", "completed"]


def is_told(world: World) -> bool:
    return any(each.widens_to for each in world.dispatcher._live.values())


@pytest.mark.parametrize("is_twice", [False, True])
def test_ctrl_c_while_it_is_asked_to_end_loses_nothing(
    widening, make_world, *, is_twice: bool
) -> None:
    seen: list[tuple[int, int]] = []
    world = widening(trains(seen=seen))
    world.turn_until(lambda: is_told(world))
    world.interrupt()
    if is_twice:
        world.interrupt()
    assert world.run().is_interrupted
    assert "WAITING" in world.stored_states()
    assert all(lease.released_at is not None for lease in world.rows(LeaseRow))
    world.close()
    again = make_world(trains(seen=seen), n_devices=4, n_trials=3, widens=True, is_ddp=True)
    assert again.run().n_completed == 3
    steps = [step for number, step in seen if number == 0]
    assert steps == list(range(1, N_STEPS + 1))


def test_a_budget_that_is_reached_meanwhile_does_not_keep_it_from_going_on(widening) -> None:
    world = widening(trains(), budget=Budget(trials=3, device_hours=1.0))
    world.turn_until(lambda: is_told(world))
    # As somebody may set it.
    world.dispatcher._spending.device_s += 3600.0
    assert world.run().n_completed == 3
    assert widths(world) == [1, 4]


def test_a_budget_that_would_not_last_is_heeded(widening) -> None:
    world = widening(trains(), budget=Budget(trials=3, time_s=60.0))
    assert world.run().n_completed == 3
    assert widths(world) == [1]


def test_one_that_is_told_to_end_is_not_started_again(widening) -> None:
    world = widening(trains())
    world.turn_until(lambda: is_told(world))
    (live,) = [each for each in world.dispatcher._live.values() if each.widens_to]
    world.dispatcher._stopping.tell(live, world.clock.now(), Cause.COMMANDED, "by ann")
    world.run()
    assert widths(world) == [1]
    assert outcomes(world) == ["pruned"]


def test_a_study_that_is_paused_meanwhile_goes_on_wider_when_it_is_resumed(widening) -> None:
    seen: list[tuple[int, int]] = []
    world = widening(trains(seen=seen))
    world.turn_until(lambda: is_told(world))
    ask(world, Order.PAUSE)
    world.turn(30.0)
    assert widths(world) == [1]
    assert not world.launcher.running
    ask(world, Order.RESUME)
    assert world.run().n_completed == 3
    assert [step for number, step in seen if number == 0] == list(range(1, N_STEPS + 1))


def test_one_device_leaves_nothing_to_widen_to(widening) -> None:
    world = widening(trains(), n_devices=1, rule=FixedWidth(width=ONE))
    assert world.run().n_completed == 3
    assert widths(world) == [1]
