"""A database that cannot be written for a while, or does not say whether it was."""

from __future__ import annotations

import pytest

from tests.fakes import FakeClock
from tests.hosts import ELSEWHERE
from tests.integration.dispatcher.database_faults import CutCommit, DiskFull
from tests.integration.dispatcher.world import (
    GRACE_S,
    World,
    completes,
    sleeps,
)
from tuner.domain.attempt import AttemptState, Cause, Outcome
from tuner.domain.budget import Budget
from tuner.domain.messages import Action
from tuner.errors import EXIT_STUDY_FAILED, StoreError
from tuner.store.optuna_tables import storage
from tuner.store.records.dispatchers.starts import StartRecord, host_id_of, insert_dispatcher
from tuner.store.records.provenance import GitState
from tuner.store.schema.models import AttemptRow, LeaseRow


def check_books(world: World, n_trials: int) -> None:
    """Everything that has ended is told alike by Optuna's tables and by ours."""
    trials = world.stored_trials()
    assert [trial.number for trial in trials] == list(range(n_trials))
    assert {trial.state.name for trial in trials} == {"COMPLETE"}
    assert all(trial.intermediate_values == {1: 0.5} for trial in trials)
    attempts = world.rows(AttemptRow)
    assert {row.state for row in attempts} == {AttemptState.FINISHED}
    completed = [row.trial_id for row in attempts if row.outcome is Outcome.COMPLETED]
    assert sorted(completed) == [trial._trial_id for trial in trials]
    leases = world.rows(LeaseRow)
    assert all(row.released_at is not None for row in leases)
    assert len(leases) == len(attempts)


def test_training_goes_on_and_nothing_is_lost(make_world):
    world = make_world(sleeps, n_devices=1, n_trials=1)
    world.turn(1.0)
    (worker,) = world.workers
    with DiskFull(world.database):
        for step in range(1, 100):
            worker.report(step, step / 100)
            world.turn(1.0)
        assert [verdict.step for verdict in worker.verdicts] == list(range(1, 100))
        worker.complete(0.7)
        world.turn(1.0)
        assert world.stored_trials()[0].intermediate_values == {}
    world.run()
    (trial,) = world.stored_trials()
    assert trial.value == 0.7
    assert trial.intermediate_values == {step: step / 100 for step in range(1, 100)}


def test_nothing_is_begun_or_told_before_the_database_knows(make_world):
    world = make_world(sleeps, n_devices=1, n_trials=2)
    world.turn(1.0)
    with DiskFull(world.database):
        world.workers[0].complete()
        world.turn(10.0)
        assert world.ended == []
        assert len(world.workers) == 1
    world.turn_until(lambda: len(world.workers) == 2)
    assert world.endings == [("0.1", "completed")]
    assert world.stored_states() == ["COMPLETE", "RUNNING"]


def test_study_that_starts_while_the_disk_is_full_runs_whole(make_world):
    world = make_world(n_devices=2, n_trials=5)
    with DiskFull(world.database) as disk:
        world.turn_until(lambda: disk.n_refused > 1)
        assert not world.workers
    world.run()
    check_books(world, 5)
    assert len(world.rows(AttemptRow)) == 5


def test_people_are_told_what_waits_and_when_it_is_over(make_world):
    world = make_world(sleeps, n_devices=1)
    world.turn(1.0)
    with DiskFull(world.database):
        for step in range(4):
            world.workers[0].report(step, loss=0.5)
        world.turn(4.0)
        assert world.said == []
        world.turn(130.0)
        assert len(world.said) == 3
        assert "The disk is full" in world.said[0]
        assert "8 values" in world.said[0]
        assert "no trial starts" in world.said[0]
    world.turn_until(lambda: "can be written again" in world.said[-1])
    assert "too many" not in world.said[-1]


def join_from_elsewhere(world: World) -> None:
    """Another dispatcher has begun to work on the study, on a machine of its own."""
    start = StartRecord(
        study_id=1,
        host=ELSEWHERE,
        seed=1,
        study_file="",
        folder="",
        versions={},
        git=GitState(),
    )
    with world.database.engine.begin() as connection:
        host_id = host_id_of(connection, ELSEWHERE)
        insert_dispatcher(connection, start, host_id, world.clock.now().utc)


@pytest.mark.parametrize("has_others", [True, False])
def test_one_that_is_cut_off_for_a_minute_leaves_its_trials_to_others(make_world, has_others):
    world = make_world(sleeps, n_devices=2, n_trials=2)
    world.turn(1.0)
    if has_others:
        join_from_elsewhere(world)
    for worker in world.workers:
        worker.report(1)
    world.turn(10.0)
    with DiskFull(world.database):
        for worker in world.workers:
            worker.report(2)
        world.turn(30.0)
        told = [[verdict.action for verdict in worker.verdicts] for worker in world.workers]
        assert told == [[Action.CONTINUE] * 2] * 2
        world.turn(40.0)
        stops = [Action.STOP] if has_others else []
        told = [[verdict.action for verdict in worker.verdicts] for worker in world.workers]
        assert told == [[Action.CONTINUE] * 2 + stops] * 2
        assert len([text for text in world.said if "asked to save and end" in text]) == has_others
        if has_others:
            for worker in world.workers:
                worker.fail("stopped", Outcome.CANCELLED, Cause.INTERRUPTED)
    # Nobody had taken them over: they go on where they were.
    world.turn_until(lambda: len(world.workers) == (4 if has_others else 2))
    world.turn(1.0)
    for worker in world.workers[-2:]:
        worker.complete()
    world.run()
    assert world.stored_states() == ["COMPLETE"] * 2
    outcomes = [row.outcome for row in world.rows(AttemptRow)]
    assert outcomes.count(Outcome.CANCELLED) == (2 if has_others else 0)
    assert outcomes.count(Outcome.COMPLETED) == 2


def test_one_that_is_cut_off_right_after_its_start_knows_of_others(make_world):
    world = make_world(sleeps, n_devices=2, n_trials=2)
    join_from_elsewhere(world)
    world.turn(1.0)
    with DiskFull(world.database):
        for worker in world.workers:
            worker.report(1)
        world.turn(70.0)
        told = [[verdict.action for verdict in worker.verdicts] for worker in world.workers]
        assert told == [[Action.CONTINUE, Action.STOP]] * 2
        for worker in world.workers:
            worker.fail("stopped", Outcome.CANCELLED, Cause.INTERRUPTED)
    world.turn_until(lambda: len(world.workers) == 4)
    world.turn(1.0)
    for worker in world.workers[-2:]:
        worker.complete()
    world.run()
    assert world.stored_states() == ["COMPLETE"] * 2


def test_a_short_one_is_not_worth_a_word(make_world):
    world = make_world(sleeps, n_devices=1)
    world.turn(1.0)
    world.workers[0].report(1)
    with DiskFull(world.database) as disk:
        world.turn(2.0)
        assert disk.n_refused
    world.turn_until(lambda: world.stored_trials()[0].intermediate_values == {1: 0.5})
    assert world.said == []


def test_no_more_reports_wait_than_memory_holds(make_world, monkeypatch):
    monkeypatch.setattr(storage, "MOST_WAITING", 3)
    world = make_world(sleeps, n_devices=1, n_trials=1)
    world.turn(1.0)
    (worker,) = world.workers
    with DiskFull(world.database):
        # What is being written when it breaks is a batch of its own.
        worker.report(0)
        world.turn(10.0)
        for step in range(1, 7):
            worker.report(step)
        worker.complete(0.7)
        world.turn(1.0)
    world.run()
    (trial,) = world.stored_trials()
    assert sorted(trial.intermediate_values) == [0, 1, 2, 3]
    assert trial.value == 0.7
    assert "3 reported values were too many to wait, and are lost" in world.said[-1]


def test_ctrl_c_waits_a_while_for_the_database_and_says_what_it_lacks(make_world):
    world = make_world(sleeps, n_devices=2, n_trials=2)
    world.turn(1.0)
    with DiskFull(world.database):
        world.workers[0].complete(0.75)
        world.turn(1.0)
        world.interrupt()
        world.turn(GRACE_S + 1.0)
        with pytest.raises(StoreError, match="The disk is full") as caught:
            world.run()
    assert "Not in it: trial 0 (0.75)." in str(caught.value)
    assert caught.value.exit_code == EXIT_STUDY_FAILED
    later = make_world(completes, n_devices=2, n_trials=2)
    later.run()
    assert later.stored_states() == ["COMPLETE"] * 2


def test_ctrl_c_again_gives_up_at_once(make_world):
    world = make_world(sleeps, n_devices=1, n_trials=1)
    world.turn(1.0)
    with DiskFull(world.database):
        world.workers[0].complete(0.75)
        world.turn(1.0)
        world.interrupt()
        before_s = world.now_s
        world.inbox.later(1.0, world.interrupt)
        with pytest.raises(StoreError):
            world.run()
    assert world.now_s - before_s < 5.0


def test_last_results_are_waited_for_as_long_as_it_takes(make_world):
    world = make_world(sleeps, n_devices=1, n_trials=1)
    world.turn(1.0)
    disk = DiskFull(world.database)
    disk.__enter__()
    world.workers[0].complete(0.75)
    world.turn(1.0)
    world.inbox.later(3600.0, lambda: disk.__exit__())
    world.run()
    assert [trial.value for trial in world.stored_trials()] == [0.75]


def test_trial_with_devices_and_without_a_process_is_put_back_at_ctrl_c(make_world):
    world = make_world(sleeps, n_devices=1, n_trials=2)
    with CutCommit(world.database, 6, is_done=False) as cut:
        world.turn()
        assert cut.n_seen >= 6
        disk = DiskFull(world.database)
        disk.__enter__()
        world.interrupt()
        world.turn(1.0)
        assert not world.workers
        disk.__exit__()
    world.turn_until(lambda: world.stored_states() == ["WAITING"])
    assert world.run().is_interrupted
    assert world.stored_states() == ["WAITING"]
    assert [row.outcome for row in world.rows(AttemptRow)] == [Outcome.CANCELLED]


@pytest.mark.parametrize("is_done", [True, False])
@pytest.mark.parametrize("number", range(1, 13))
def test_connection_that_is_cut_in_a_commit(make_world, number, is_done):
    world = make_world(n_devices=2, n_trials=4)
    with CutCommit(world.database, number, is_done=is_done) as cut:
        result = world.run()
    assert cut.n_seen > number
    assert result.n_completed == 4
    check_books(world, 4)
    assert len(world.workers) == 4


def test_trial_that_waits_is_taken_up_once_where_the_answer_to_its_claim_is_lost(make_world):
    first = make_world(sleeps, n_devices=1, n_trials=1)
    first.turn(1.0)
    first.interrupt()
    first.run()
    world = make_world(completes, n_devices=1, n_trials=1)
    with CutCommit(world.database, 1, is_done=True):
        world.run()
    assert world.stored_states() == ["COMPLETE"]
    assert [worker.id for worker in world.workers] == ["0.2"]


@pytest.mark.parametrize("hours", [1, -1])
def test_clock_that_is_set_changes_no_deadline_and_no_budget(make_world, hours):
    clock = FakeClock()
    world = make_world(
        sleeps, n_devices=1, clock=clock, timeout_s=1800.0, budget=Budget(trials=1, time_s=3000.0)
    )
    world.turn(1.0)
    (worker,) = world.workers
    worker.hello()
    world.turn(1.0)
    clock.jump(hours * 3600.0)
    worker.report(1)
    world.turn(20.0)
    assert [verdict.action for verdict in worker.verdicts] == [Action.CONTINUE]
    assert world.launcher.signals == []
    worker.complete()
    world.run()
    check_books(world, 1)
