"""Trials that are resumed with nothing left to do: their last value, or one more start."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from tests.integration.dispatcher.world import FakeWorker, World
from tuner.config import Direction
from tuner.domain.attempt import Cause, Outcome
from tuner.domain.messages import Report

STEPS = (1, 2, 3)
TWO = {"accuracy": Direction.MAXIMIZE, "size": Direction.MINIMIZE}
NewWorld = Callable[..., World]


def attempt_of(worker: FakeWorker) -> int:
    return worker.request.assign.attempt_number


def save(worker: FakeWorker, step: int) -> None:
    folder = worker._world.files.checkpoints(worker.trial_number)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"step-{step}.pt").touch()


def has_state(worker: FakeWorker) -> bool:
    return worker._world.files.has_checkpoint(worker.trial_number)


def trains(worker: FakeWorker, last: int = 3, value: float = 0.5) -> None:
    for step in range(1, last + 1):
        worker.report(step, value * step)
    save(worker, last)


def finds_itself_done(worker: FakeWorker) -> None:
    """Trains, and is told to end from outside after that; the next attempt finds nothing to do."""
    worker.later(0.1, worker.hello)
    if attempt_of(worker) == 1:
        worker.later(0.5, lambda: trains(worker))
        worker.later(1.0, lambda: worker.fail("SIGTERM", Outcome.CANCELLED, Cause.SIGNAL))
    else:
        worker.later(0.5, lambda: worker.finish(Outcome.COMPLETED))
        worker.later(0.6, lambda: worker.exit(0))


def test_last_value_of_an_earlier_attempt_is_taken(make_world: NewWorld) -> None:
    world = make_world(finds_itself_done, n_trials=3, n_devices=1)
    world.run()
    assert [outcome for _, outcome in world.endings] == ["cancelled", "completed"] * 3
    assert [trial.values for trial in world.stored_trials()] == [[1.5]] * 3
    assert "reported at step 3 in attempt 1" in world.ended[-1].ending.detail


def test_last_values_of_all_objectives_are_taken(make_world: NewWorld) -> None:
    def program(worker: FakeWorker) -> None:
        def report() -> None:
            for step in STEPS:
                values = {"accuracy": 0.1 * step, "size": 5.0 * step}
                worker.say(Report(attempt_id=worker.id, step=step, values=values))
            save(worker, 3)

        worker.later(0.1, worker.hello)
        if attempt_of(worker) == 1:
            worker.later(0.5, report)
            worker.later(1.0, lambda: worker.fail("ValueError"))
        else:
            worker.later(0.5, lambda: worker.finish(Outcome.COMPLETED))
            worker.later(0.6, lambda: worker.exit(0))

    world = make_world(program, n_trials=1, n_devices=1, retries=1, objectives=TWO)
    world.run()
    (trial,) = world.stored_trials()
    assert trial.values == pytest.approx([0.3, 15.0])


def test_not_a_number_is_no_value(make_world: NewWorld) -> None:
    def program(worker: FakeWorker) -> None:
        worker.later(0.1, worker.hello)
        if attempt_of(worker) == 1:
            worker.later(0.5, lambda: trains(worker, value=math.nan))
            worker.later(1.0, lambda: worker.fail("SIGTERM", Outcome.CANCELLED, Cause.SIGNAL))
        else:
            worker.later(0.5, lambda: worker.finish(Outcome.COMPLETED))
            worker.later(0.6, lambda: worker.exit(0))

    world = make_world(program, n_trials=1, n_devices=1)
    world.run()
    assert "completed" not in dict(world.endings).values()


@pytest.mark.parametrize("attempts", [1, 2])
def test_program_that_never_reported_has_failed(make_world: NewWorld, attempts: int) -> None:
    def program(worker: FakeWorker) -> None:
        worker.later(0.1, worker.hello)
        worker.later(0.5, lambda: worker.finish(Outcome.COMPLETED))
        worker.later(0.6, lambda: worker.exit(0))

    world = make_world(program, n_trials=1, n_devices=1, retries=attempts - 1)
    world.run()
    assert [outcome for _, outcome in world.endings] == ["failed"] * attempts


def ends_too_early(worker: FakeWorker) -> None:
    """Trial 0 has three steps; trial 1 stands at step 2 when it finds itself done."""
    worker.later(0.1, worker.hello)
    if worker.trial_number == 0 or (attempt_of(worker) > 1 and not has_state(worker)):
        worker.later(0.5, lambda: trains(worker, value=0.25))
        worker.later(0.6, worker.complete)
    elif attempt_of(worker) == 1:
        worker.later(0.5, lambda: trains(worker, last=2))
        worker.later(1.0, lambda: worker.fail("SIGTERM", Outcome.CANCELLED, Cause.SIGNAL))
    else:
        worker.later(0.5, lambda: worker.finish(Outcome.COMPLETED))
        worker.later(0.6, lambda: worker.exit(0))


def test_value_before_the_last_step_is_not_taken(make_world: NewWorld) -> None:
    world = make_world(ends_too_early, n_trials=2, n_devices=1)
    world.run()
    outcomes = [outcome for _, outcome in world.endings]
    assert outcomes == ["completed", "cancelled", "cancelled", "completed"]
    second = world.stored_trials()[1]
    assert second.value == 0.5
    assert second.intermediate_values == {1: 0.25, 2: 0.5, 3: 0.75}
    assert any("starts again without its checkpoint" in text for text in world.said)


def test_it_starts_without_its_checkpoint_once(make_world: NewWorld) -> None:
    def program(worker: FakeWorker) -> None:
        if worker.trial_number == 0 or attempt_of(worker) == 1:
            ends_too_early(worker)
            return
        worker.later(0.1, worker.hello)
        worker.later(0.4, lambda: save(worker, 2))
        worker.later(0.5, lambda: worker.finish(Outcome.COMPLETED))
        worker.later(0.6, lambda: worker.exit(0))

    world = make_world(program, n_trials=2, n_devices=1)
    world.run()
    outcomes = [outcome for _, outcome in world.endings]
    assert outcomes == ["completed", "cancelled", "cancelled", "failed"]


def test_variable_that_only_a_step_sets(make_world: NewWorld) -> None:
    """`return loss` after a loop that has no step left."""

    def program(worker: FakeWorker) -> None:
        worker.later(0.1, worker.hello)
        if attempt_of(worker) > 1 and has_state(worker):
            text = "UnboundLocalError: cannot access local variable 'loss'"
            worker.later(0.5, lambda: worker.fail(text))
            return
        worker.later(0.5, lambda: trains(worker))
        if attempt_of(worker) == 1:
            worker.later(1.0, lambda: worker.fail("SIGTERM", Outcome.CANCELLED, Cause.SIGNAL))
        else:
            worker.later(1.0, lambda: worker.complete(0.75))

    world = make_world(program, n_trials=1, n_devices=1)
    world.run()
    assert [outcome for _, outcome in world.endings] == ["cancelled", "cancelled", "completed"]
    assert world.stored_trials()[0].value == 0.75


def test_variable_that_no_step_sets_is_a_failure(make_world: NewWorld) -> None:
    """A mistake after the training: another training would meet it too."""

    def program(worker: FakeWorker) -> None:
        worker.later(0.1, worker.hello)
        if attempt_of(worker) == 1:
            worker.later(0.5, lambda: trains(worker))
        worker.later(1.0, lambda: worker.fail("NameError: name 'plot' is not defined"))

    world = make_world(program, n_trials=1, n_devices=1, retries=1)
    world.run()
    assert [outcome for _, outcome in world.endings] == ["failed", "failed"]
    assert world.files.has_checkpoint(0)
