"""A program that fails in the same way from the start costs three attempts, not the budget."""

from __future__ import annotations

from collections.abc import Callable

from tests.integration.dispatcher.world import FakeWorker, Program


def fails(worker: FakeWorker) -> None:
    worker.later(0.1, worker.hello)
    worker.later(1.0 + worker.trial_number / 10, lambda: worker.fail("ValueError: boom"))


def test_study_ends_after_three_failures_alike(make_world):
    world = make_world(fails, n_devices=2, n_trials=500)
    result = world.run()
    assert (result.n_failed, result.n_completed, result.is_interrupted) == (3, 0, False)
    assert result.reason == "its first attempts all failed in the same way"
    (said,) = world.said
    assert "ValueError: boom" in said
    assert "Correct the program" in said
    assert len(world.workers) <= 4
    # What ran beside them is no proof of anything, and waits for the next start.
    assert set(world.stored_states()) <= {"FAIL", "WAITING"}


def test_retries_are_attempts_too(make_world):
    world = make_world(fails, n_devices=1, n_trials=500, retries=10)
    result = world.run()
    assert len(world.workers) == 3
    assert (result.n_failed, result.is_hopeless) == (1, True)
    assert [ended.will_retry for ended in world.ended] == [True, True, False]


def completes(worker: FakeWorker) -> None:
    worker.later(0.1, worker.hello)
    worker.later(1.0, worker.complete)


def test_later_start_with_a_corrected_program_has_its_whole_budget(make_world):
    failed = make_world(fails, n_devices=1, n_trials=5)
    failed.run()
    params = [trial.params for trial in failed.stored_trials()]

    world = make_world(completes, n_devices=1, n_trials=5)
    assert world.run().n_completed == 5
    assert world.stored_states() == ["COMPLETE"] * 5
    # The same configurations, first of all.
    assert [worker.trial_number for worker in world.workers] == [0, 1, 2, 3, 4]
    assert [trial.params for trial in world.stored_trials()][: len(params)] == params


def test_failures_of_a_broken_program_are_no_retries(make_world):
    make_world(fails, n_devices=1, n_trials=1, retries=1).run()

    def program(worker: FakeWorker) -> None:
        worker.later(0.1, worker.hello)
        is_first = worker.request.assign.attempt_number == 3
        worker.later(1.0, worker.fail if is_first else worker.complete)

    world = make_world(program, n_devices=1, n_trials=1, retries=1)
    assert world.run().n_completed == 1
    assert [worker.request.assign.attempt_number for worker in world.workers] == [3, 4]


def test_failed_trials_stay_where_one_has_ended_well(make_world):
    def program(worker: FakeWorker) -> None:
        worker.later(0.1, worker.hello)
        worker.later(1.0, worker.complete if worker.trial_number == 1 else worker.fail)

    make_world(program, n_devices=1, n_trials=3).run()
    world = make_world(completes, n_devices=1, n_trials=5)
    world.run()
    assert world.stored_states() == ["FAIL", "COMPLETE", "FAIL", "COMPLETE", "COMPLETE"]


def test_one_that_works_now_and_then_is_left_alone(make_world):
    def program(worker: FakeWorker) -> None:
        worker.later(0.1, worker.hello)
        end = worker.complete if worker.trial_number == 1 else worker.fail
        worker.later(1.0, end)

    world = make_world(program, n_devices=1, n_trials=8)
    result = world.run()
    assert (result.n_completed, result.n_failed) == (1, 7)


def beside_the_first(end_first: Callable[[FakeWorker], None]) -> Program:
    """The first trial reports, and ends as the test says; all others fail."""

    def program(worker: FakeWorker) -> None:
        worker.later(0.1, worker.hello)
        if worker.trial_number == 0:
            worker.later(0.5, lambda: worker.report(1))
            end_first(worker)
        else:
            worker.later(1.0, worker.fail)

    return program


def test_it_goes_on_while_another_trial_reports(make_world):
    program = beside_the_first(lambda worker: worker.later(20.0, worker.complete))
    world = make_world(program, n_devices=2, n_trials=8)
    result = world.run()
    assert (result.n_completed, result.n_failed) == (1, 7)
    assert not result.is_hopeless


def test_it_ends_where_the_one_that_reported_fails_too(make_world):
    program = beside_the_first(lambda worker: worker.later(6.2, worker.fail))
    world = make_world(program, n_devices=2, n_trials=500)
    result = world.run()
    assert result.is_hopeless
    assert result.n_failed < 12


def test_reports_before_the_failure_change_nothing(make_world):
    def program(worker: FakeWorker) -> None:
        worker.later(0.1, worker.hello)
        worker.later(0.5, lambda: worker.report(1))
        worker.later(1.0, worker.fail)

    world = make_world(program, n_devices=1, n_trials=500)
    assert world.run().n_failed == 3
