"""What trials save is told to the database, and what is lost is told to people."""

from __future__ import annotations

import shutil
from pathlib import Path

import sqlalchemy as sa

from tests.integration.dispatcher.world import FakeWorker, World, sleeps
from tests.unit.checkpoints.test_scan import save
from tuner.checkpoints.retention import RetentionRule
from tuner.store.schema.models import CheckpointRow


def folder_of(worker: FakeWorker) -> Path:
    return Path(worker.request.assign.checkpoint_dir)


def saves(worker: FakeWorker) -> None:
    folder_of(worker).parent.mkdir(parents=True, exist_ok=True)
    sleeps(worker)
    worker.later(0.5, lambda: save(folder_of(worker), 1))


def stored_steps(world: World) -> list[int]:
    query = sa.select(CheckpointRow.step).order_by(CheckpointRow.id)
    with world.database.engine.connect() as connection:
        return list(connection.execute(query).scalars())


def test_states_of_running_trials_come_and_go(make_world):
    world = make_world(saves, n_devices=1, n_trials=1)
    world.turn_until(lambda: stored_steps(world) == [1])
    folder = folder_of(world.workers[0])
    save(folder, 2, at_s=2000.0)
    save(folder, 3, at_s=3000.0)
    (folder / "step-1.pt").unlink()
    world.turn_until(lambda: stored_steps(world) == [2, 3])


def test_state_that_is_saved_last_is_told_too(make_world):
    def program(worker: FakeWorker) -> None:
        folder_of(worker).parent.mkdir(parents=True, exist_ok=True)
        worker.later(0.1, worker.hello)
        worker.later(0.2, lambda: (save(folder_of(worker), 7), worker.complete()))

    world = make_world(program, n_devices=1, n_trials=2)
    world.run()
    assert stored_steps(world) == [7, 7]


def test_rows_go_with_the_files(make_world):
    def program(worker: FakeWorker) -> None:
        saves(worker)
        worker.later(3.0, lambda: worker.complete(0.1 * worker.trial_number))

    world = make_world(program, n_devices=1, n_trials=3, retention=RetentionRule(n_best=1))
    world.run()
    world.dispatcher.keep_house()
    kept = [n for n in world.files.trials() if world.files.checkpoints(n).exists()]
    assert kept == [2]
    with world.database.engine.connect() as connection:
        paths = list(connection.execute(sa.select(CheckpointRow.path)).scalars())
    assert paths == [str(world.files.checkpoints(2) / "step-1.pt")]


def test_trial_whose_state_is_not_here_says_that_it_starts_again(make_world):
    first = make_world(saves, n_devices=2, n_trials=2)
    first.turn_until(lambda: len(stored_steps(first)) == 2)
    first.interrupt()
    first.run()
    shutil.rmtree(folder_of(first.workers[0]))
    world = make_world(saves, n_devices=2, n_trials=2)
    world.turn(1.0)
    (said,) = world.said
    assert said.startswith("Trial 0 starts again from the beginning: the state that it saved at ")
    assert "step 1 on here, " in said


def interrupted_with_two_states(make_world) -> Path:
    """Gives the folder of the only trial, which has saved steps 1 and 2."""
    first = make_world(saves, n_devices=1, n_trials=1)
    first.turn_until(lambda: stored_steps(first) == [1])
    folder = folder_of(first.workers[0])
    save(folder, 2, at_s=2000.0)
    first.turn_until(lambda: stored_steps(first) == [1, 2])
    first.interrupt()
    first.run()
    return folder


def test_state_of_an_older_step_is_what_it_goes_on_from(make_world):
    (interrupted_with_two_states(make_world) / "step-2.pt").unlink()
    world = make_world(saves, n_devices=1, n_trials=1)
    world.turn(1.0)
    assert world.said[0].startswith(
        "Trial 0 continues from step 1: the state that it saved at step 2"
    )


def test_a_newer_state_that_no_look_has_found_is_no_loss(make_world):
    folder = interrupted_with_two_states(make_world)
    for step in (1, 2):
        (folder / f"step-{step}.pt").unlink()
    save(folder, 9, at_s=3000.0)
    world = make_world(sleeps, n_devices=1, n_trials=1)
    world.turn_until(lambda: stored_steps(world) == [9])
    assert world.said == []


def test_states_that_went_while_nobody_looked_are_forgotten(make_world):
    (interrupted_with_two_states(make_world) / "step-1.pt").unlink()
    world = make_world(sleeps, n_devices=1, n_trials=1)
    world.turn(3.0)
    assert world.said == []
    assert stored_steps(world) == [2]


def test_report_of_a_trial_that_is_to_end_is_kept(make_world):
    world = make_world(sleeps, n_devices=1, n_trials=1)
    world.turn(1.0)
    world.workers[0].report(1, 0.1)
    world.turn(1.0)
    world.interrupt()
    world.turn()
    world.workers[0].report(2, 0.2)
    world.workers[0].exit(0)
    world.run()
    (trial,) = world.stored_trials()
    assert trial.intermediate_values == {1: 0.1, 2: 0.2}


def test_what_an_attempt_left_half_written_goes_with_its_processes(make_world):
    """Not what another attempt is writing, on a host that was cut off."""
    names = ("step-3.partial-1-here-77", "step-4.replaced-1-ranks", "step-5.partial-2-there-88")

    def program(worker: FakeWorker) -> None:
        folder = folder_of(worker)
        folder.mkdir(parents=True, exist_ok=True)
        sleeps(worker)
        if worker.request.assign.attempt_number == 1:
            for name in names:
                (folder / name).write_bytes(b"half")
            worker.later(1.0, worker.fail)

    world = make_world(program, n_devices=1, n_trials=1, retries=1)
    world.turn_until(lambda: len(world.workers) == 2)
    folder = folder_of(world.workers[0])
    world.turn_until(lambda: {path.name for path in folder.iterdir()} == {names[2]})
    world.workers[1].complete()
    world.turn_until(lambda: not list(folder.iterdir()))
