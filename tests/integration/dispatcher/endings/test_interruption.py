"""Ctrl-C once and twice, and the start after it."""

from __future__ import annotations

import pytest

from tests.integration.dispatcher.world import GRACE_S, completes, sleeps
from tuner.domain.attempt import Cause, Outcome
from tuner.domain.budget import Budget
from tuner.domain.messages import Action, Finished
from tuner.errors import StoreError
from tuner.store.schema.models import AttemptRow, DispatcherRow, LeaseRow


def names(world) -> list[str]:
    return [number.name for _, number in world.launcher.signals]


def test_once_tells_trials_to_stop_then_terms_then_kills(make_world):
    world = make_world(sleeps, n_devices=2)
    world.turn(1.0)
    for worker in world.workers:
        world.launcher.stubborn.add(worker.id)
    world.interrupt()
    world.turn()
    for worker in world.workers:
        (verdict,) = worker.verdicts
        assert (verdict.step, verdict.action) == (-1, Action.STOP)
    assert names(world) == []
    world.turn(GRACE_S - 0.5)
    assert names(world) == []
    world.turn(0.5)
    assert names(world) == ["SIGTERM"] * 2
    world.turn(GRACE_S - 0.5)
    assert names(world) == ["SIGTERM"] * 2
    world.turn(0.5)
    assert names(world) == ["SIGTERM"] * 2 + ["SIGKILL"] * 2
    world.turn()
    assert [outcome for _, outcome in world.endings] == ["cancelled"] * 2
    assert "Ctrl-C again kills them" in world.said[0]


def test_twice_kills_at_once(make_world):
    world = make_world(sleeps, n_devices=2)
    world.turn(1.0)
    world.interrupt()
    world.turn(1.0)
    world.interrupt()
    result = world.run()
    assert names(world) == ["SIGKILL"] * 2
    assert result.is_interrupted
    assert result.reason == "interrupted"
    assert len(world.said) == 1


def test_cancelled_trials_wait_and_nothing_new_starts(make_world):
    world = make_world(sleeps, n_devices=2)
    world.turn(1.0)
    world.interrupt()
    assert world.run().is_interrupted
    assert world.stored_states() == ["WAITING"] * 2
    assert len(world.workers) == 2
    assert {row.outcome for row in world.rows(AttemptRow)} == {Outcome.CANCELLED}


def test_next_start_continues_them_with_the_same_number_and_params(make_world):
    first = make_world(sleeps, n_devices=2)
    first.turn(1.0)
    first.workers[1].report(1, 0.5)
    first.turn()
    first.interrupt()
    first.run()
    second = make_world(completes, n_devices=2)
    result = second.run()
    assert [worker.id for worker in second.workers[:2]] == ["0.2", "1.2"]
    for before, after in zip(first.workers, second.workers[:2], strict=True):
        assert before.request.assign.params == after.request.assign.params
        assert before.request.assign.seed != after.request.assign.seed
    assert (result.n_completed, len(second.workers)) == (4, 4)
    assert second.stored_states() == ["COMPLETE"] * 4


def test_trial_that_ends_in_its_grace_is_completed(make_world):
    world = make_world(sleeps, n_devices=2)
    world.turn(1.0)
    world.interrupt()
    world.turn(1.0)
    world.workers[0].complete(0.9)
    world.run()
    assert world.stored_states() == ["COMPLETE", "WAITING"]


def test_report_after_ctrl_c_is_answered_with_stop(make_world):
    world = make_world(sleeps, n_devices=1)
    world.turn(1.0)
    world.interrupt()
    world.turn()
    (worker,) = world.workers
    worker.report(3)
    world.turn()
    assert [(v.step, v.action) for v in worker.verdicts] == [(-1, Action.STOP), (3, Action.STOP)]


def test_hello_after_ctrl_c_is_answered_with_stop(make_world):
    world = make_world(lambda worker: None, n_devices=1)
    world.turn(1.0)
    world.interrupt()
    world.turn()
    (worker,) = world.workers
    worker.hello()
    world.turn()
    assert [v.action for v in worker.verdicts] == [Action.STOP]
    world.run()
    assert world.endings == [("0.1", "cancelled")]


def test_failure_after_ctrl_c_is_not_tried_again_now(make_world):
    world = make_world(sleeps, n_devices=1, retries=5)
    world.turn(1.0)
    world.interrupt()
    world.turn()
    world.workers[0].fail()
    world.run()
    assert len(world.workers) == 1
    assert world.stored_states() == ["WAITING"]


def test_retries_that_wait_go_back_to_the_study(make_world):
    world = make_world(sleeps, n_devices=1, n_trials=1, retries=5)
    device = world.probe.devices()[0]
    world.turn(1.0)
    world.probe.use(device, memory_used_bytes=40 * 1024**3)
    world.workers[0].fail()
    world.turn()
    world.interrupt()
    world.turn()
    world.probe.use(device, memory_used_bytes=0)
    world.run()
    assert world.stored_states() == ["WAITING"]


def test_timed_out_trial_keeps_its_reason_after_ctrl_c(make_world):
    world = make_world(sleeps, n_devices=1, timeout_s=5.0)
    world.turn(0.25)
    (worker,) = world.workers
    world.launcher.stubborn.add(worker.id)
    world.turn(6.0)
    assert names(world) == ["SIGTERM"]
    world.interrupt()
    world.turn(GRACE_S)
    assert names(world) == ["SIGTERM", "SIGKILL"]
    assert world.endings == [("0.1", "timed_out")]
    assert world.ended[0].ending.detail == "It did not end within 5 s."


def test_trial_that_has_said_its_last_word_keeps_it_after_ctrl_c(make_world):
    world = make_world(sleeps, n_devices=1, n_trials=1)
    world.turn(1.0)
    (worker,) = world.workers
    worker.say(
        Finished(attempt_id=worker.id, outcome=Outcome.FAILED, cause=Cause.EXCEPTION, detail="x")
    )
    world.turn()
    world.interrupt()
    world.turn()
    worker.exit(0)
    world.run()
    assert world.endings == [("0.1", "failed")]


def test_dispatcher_that_died_leaves_trials_that_the_next_one_takes_up(make_world):
    first = make_world(sleeps, n_devices=2)
    first.turn(60.0)  # And it is never heard of again.
    second = make_world(completes, n_devices=2, clock=first.clock)
    result = second.run()
    assert (result.n_completed, result.n_failed) == (4, 0)
    assert [worker.id for worker in second.workers[:2]] == ["0.2", "1.2"]
    for before, after in zip(first.workers, second.workers[:2], strict=True):
        assert before.request.assign.params == after.request.assign.params
    lost = [row for row in second.rows(AttemptRow) if row.number == 1][:2]
    assert {row.outcome for row in lost} == {Outcome.LOST}
    assert all(row.held_device_id is None for row in second.rows(LeaseRow))


def test_time_in_which_no_dispatcher_ran_is_not_spent(make_world):
    first = make_world(sleeps, n_devices=2)
    first.turn(100.0)
    first.clock.advance(7 * 24 * 3600)
    second = make_world(sleeps, n_devices=2, clock=first.clock)
    past = second.recorder.past
    second.interrupt()
    second.run()
    third = make_world(sleeps, n_devices=2, clock=second.clock, budget=Budget(trials=1))
    for spent in (past, third.recorder.past):
        assert 80 <= spent.time_s <= 130
        assert 160 <= spent.device_s <= 260


def test_late_writer_whose_attempts_were_taken_over_is_refused(make_world):
    first = make_world(sleeps, n_devices=1)
    first.turn(1.0)
    make_world(sleeps, n_devices=1, clock=first.clock)
    first.workers[0].complete()
    with pytest.raises(StoreError, match="another one took its trials over"):
        first.turn(1.0)


def test_end_of_a_dispatcher_is_recorded(make_world):
    world = make_world(n_devices=1, n_trials=1)
    world.run()
    (row,) = world.rows(DispatcherRow)
    assert row.ended_at is not None
    assert row.ended_at >= row.started_at
