"""A trial whose attempts are lost again and again: it fails only where it makes no progress."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from tests.integration.dispatcher.world import FakeWorker, World, completes, sleeps
from tuner.dispatch.attempts.endings.lost_attempts import MOST_IN_VAIN
from tuner.domain.attempt import Outcome
from tuner.queries.locate import StoredStudy
from tuner.store.schema.models import AttemptRow
from tuner.terminal.why import explain

MakeWorld = Callable[..., World]
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def reaches(step: int) -> Callable[[FakeWorker], None]:
    def program(worker: FakeWorker) -> None:
        worker.later(0.1, worker.hello)
        worker.later(0.2, lambda: worker.report(step))

    return program


def is_killed_while(make_world: MakeWorld, program: Callable[[FakeWorker], None]) -> World:
    """A dispatcher that dies while a trial runs, as with kill -9."""
    world = make_world(program, n_devices=1, n_trials=1, retries=0)
    world.turn(1.0)
    world.turn(1.0)
    world.close()
    return world


def test_trial_that_takes_its_dispatcher_down_each_time_fails_in_the_end(
    make_world: MakeWorld,
) -> None:
    for _ in range(MOST_IN_VAIN + 1):
        is_killed_while(make_world, sleeps)
    last = make_world(completes, n_devices=1, n_trials=2, retries=5)
    result = last.run()
    assert (result.n_failed, result.n_completed) == (1, 1)
    assert [worker.id for worker in last.workers] == ["1.1"]
    assert any(f"Trial 0: The last {MOST_IN_VAIN} attempts were lost" in s for s in last.said)
    rows = last.rows(AttemptRow)
    assert [row.outcome for row in rows[:-1]] == [Outcome.LOST] * (MOST_IN_VAIN + 1)
    assert "lost without progress" in rows[-2].detail
    study = StoredStudy(id=last.search.study_id, name="study")
    with last.database.engine.connect() as connection:
        told = explain(connection, study, 0, NOW)
    assert told.count("so that the trial was to be run again") == MOST_IN_VAIN
    assert f"attempt {MOST_IN_VAIN + 1}: lost (" in told


def test_one_that_repeats_its_steps_fails_too(make_world: MakeWorld) -> None:
    for _ in range(MOST_IN_VAIN + 1):
        is_killed_while(make_world, reaches(3))
    last = make_world(completes, n_devices=1, n_trials=1)
    assert last.run().n_failed == 1


def test_trial_that_makes_progress_is_never_failed(make_world: MakeWorld) -> None:
    for step in range(1, 2 * MOST_IN_VAIN, 5):
        for _ in range(MOST_IN_VAIN // 4):
            is_killed_while(make_world, reaches(step))
    last = make_world(completes, n_devices=1, n_trials=1, retries=0)
    assert last.run().n_completed == 1


def test_attempts_that_were_lost_before_they_began_do_not_count(make_world: MakeWorld) -> None:
    for _ in range(MOST_IN_VAIN + 5):
        is_killed_while(make_world, lambda worker: None)
    last = make_world(completes, n_devices=1, n_trials=1, retries=0)
    assert last.run().n_completed == 1


def test_program_whose_fork_server_is_lost_each_time_fails_in_one_run(
    make_world: MakeWorld,
) -> None:
    def takes_the_server_down(worker: FakeWorker) -> None:
        worker.later(0.1, worker.hello)
        worker.later(0.5, lambda: worker.exit(255, is_lost=True))

    world = make_world(takes_the_server_down, n_devices=1, n_trials=1, retries=3)
    assert world.run().n_failed == 1
    outcomes = [row.outcome for row in world.rows(AttemptRow)]
    assert outcomes == [Outcome.LOST] * MOST_IN_VAIN + [Outcome.FAILED]
