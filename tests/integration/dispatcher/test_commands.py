"""What somebody asks of a running study through its database."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.integration.dispatcher.database_faults import DiskFull
from tests.integration.dispatcher.endings.test_outage import check_books
from tests.integration.dispatcher.world import World, completes, sleeps
from tests.integration.stored_studies.seeded import add_attempt, add_dispatcher
from tuner.domain.attempt import Cause, Outcome
from tuner.domain.messages import Action
from tuner.store.records.commands import Command, Order, insert_command
from tuner.store.schema.models import AttemptRow, EventRow

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def ask(world: World, order: Order, trial: int | None = None, **arguments) -> None:
    command = Command(order=order, trial_number=trial, arguments=arguments, asked_by="joe@box")
    with world.database.engine.begin() as connection:
        insert_command(connection, world.search.study_id, command, at=NOW)


def events(world: World) -> list[tuple[str, str]]:
    names = {order.value for order in Order}
    return [(row.name, row.detail) for row in world.rows(EventRow) if row.name in names]


def test_paused_study_ends_what_runs_and_starts_nothing_until_it_is_resumed(make_world):
    world = make_world(sleeps, n_devices=2, n_trials=4)
    world.turn(1.0)
    ask(world, Order.PAUSE)
    world.turn(2.0)
    world.workers[0].complete()
    world.workers[1].complete()
    world.turn(60.0)
    assert len(world.workers) == 2
    assert world.stored_states() == ["COMPLETE"] * 2
    assert "Paused" in world.said[-1]
    assert "joe@box" in world.said[-1]
    ask(world, Order.RESUME)
    world.turn(2.0)
    assert len(world.workers) == 4
    assert [name for name, _ in events(world)] == ["pause", "resume"]
    assert "joe@box" in events(world)[0][1]


def test_paused_study_does_not_end_and_can_be_interrupted(make_world):
    world = make_world(completes, n_devices=1, n_trials=3)
    ask(world, Order.PAUSE)
    world.inbox.later(100.0, world.interrupt)
    assert world.run().is_interrupted
    assert world.now_s > 590.0
    assert len(world.workers) <= 2


def test_later_start_of_a_paused_study_waits_too(make_world):
    first = make_world(completes, n_devices=1, n_trials=3)
    ask(first, Order.PAUSE)
    first.inbox.later(10.0, first.interrupt)
    first.run()
    world = make_world(completes, n_devices=1, n_trials=3)
    n_before = len(first.workers)
    world.turn(10.0)
    assert not world.workers
    assert "is paused (by joe@box)" in world.said[0]
    ask(world, Order.RESUME)
    world.run()
    assert n_before + len(world.workers) == 3
    check_books(world, 3)


def test_stopped_study_ends_as_after_ctrl_c(make_world):
    world = make_world(sleeps, n_devices=2, n_trials=4)
    world.turn(1.0)
    ask(world, Order.STOP)
    world.turn(2.0)
    assert [verdict.action for verdict in world.workers[0].verdicts] == [Action.STOP]
    result = world.run()
    assert (result.is_interrupted, result.reason) == (True, "stopped by joe@box")
    assert world.stored_states() == ["WAITING"] * 2


def test_command_of_before_is_not_heard(make_world):
    first = make_world(completes, n_devices=1, n_trials=1)
    ask(first, Order.STOP)
    world = make_world(completes, n_devices=1, n_trials=3)
    assert world.run().n_completed == 3


def test_stopped_trial_counts_as_pruned_and_the_others_go_on(make_world):
    world = make_world(sleeps, n_devices=2, n_trials=3)
    world.turn(1.0)
    world.workers[0].hello()
    world.workers[0].report(1, 0.3)
    world.turn(1.0)
    ask(world, Order.STOP, trial=0)
    world.turn(2.0)
    assert [verdict.action for verdict in world.workers[0].verdicts][-1] is Action.STOP
    assert world.workers[1].verdicts == []
    world.workers[0].finish(Outcome.CANCELLED, cause=Cause.INTERRUPTED)
    world.workers[0].exit(0)
    world.turn(1.0)
    assert world.stored_states() == ["PRUNED", "RUNNING", "RUNNING"]
    (row,) = [row for row in world.rows(AttemptRow) if row.outcome is not None]
    assert (row.outcome, row.cause) == (Outcome.PRUNED, Cause.COMMANDED)
    assert "joe@box" in row.detail


def test_other_limits_hold_at_once(make_world):
    world = make_world(completes, n_devices=1, n_trials=2)
    ask(world, Order.SET, **{"budget.trials": 5})
    result = world.run()
    assert result.n_completed == 5
    check_books(world, 5)


def test_command_is_heard_once_the_database_answers_again(make_world):
    world = make_world(sleeps, n_devices=1, n_trials=2)
    world.turn(1.0)
    with DiskFull(world.database):
        world.workers[0].report(1)
        world.turn(5.0)
    ask(world, Order.STOP)
    world.turn_until(lambda: any("Stopping" in text for text in world.said))
    assert world.run().is_interrupted


def test_a_budget_of_device_hours_that_is_set_later_counts_what_others_spent(make_world):
    world = make_world(completes, n_devices=1, n_trials=50)
    world.turn(5.0)
    # Somebody came and went meanwhile, which this dispatcher had no need to know.
    other = add_dispatcher(world.url, "study", host="elsewhere", is_ended=True)
    add_attempt(world.url, other, 0, number=9)
    assert world.recorder.fleet.device_s_elsewhere == 0.0
    ask(world, Order.SET, **{"budget.device_hours": 1000.0})
    world.turn(10.0)
    assert world.recorder.fleet.device_s_elsewhere > 0.0
