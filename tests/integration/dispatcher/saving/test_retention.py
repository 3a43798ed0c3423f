"""Checkpoints as trials end: losers' go, what may be wanted again stays, whatever happens."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.dispatcher.world import FakeWorker, World, sleeps
from tuner.checkpoints.layout import IDENTITY_NAME
from tuner.checkpoints.paths import StudyFiles
from tuner.checkpoints.retention import End, EndedTrial, RetentionRule
from tuner.dispatch.notices import Said
from tuner.dispatch.upkeep.checkpoint_sweeper import Sweeper

#: Of each trial, in bytes; nothing of it is on the disk.
SIZE = 64 * 1024**2


def make_file(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(SIZE)


def save(worker: FakeWorker) -> None:
    folder = Path(worker.request.assign.checkpoint_dir)
    folder.mkdir(parents=True)
    make_file(folder / "step-1.pt")


def saves(*values: float | None) -> Callable[[FakeWorker], None]:
    """Trial n saves a state and completes with the n-th value; None: it fails."""

    def program(worker: FakeWorker) -> None:
        value = values[worker.trial_number]
        worker.later(0.1, worker.hello)
        worker.later(0.5, lambda: save(worker))
        worker.later(5.0, worker.fail if value is None else lambda: worker.complete(value))

    return program


def saves_and_sleeps(worker: FakeWorker) -> None:
    sleeps(worker)
    worker.later(0.5, lambda: save(worker))


def saved(world: World) -> set[int]:
    return {n for n in world.files.trials() if world.files.checkpoints(n).exists()}


def said(world: World) -> list[str]:
    return [each.text for each in world.view.notices if isinstance(each, Said)]


def test_best_few_keep_theirs(make_world: Callable[..., World]) -> None:
    program = saves(0.3, 0.9, None, 0.5, 0.7, 0.1)
    world = make_world(program, n_trials=6, retention=RetentionRule(n_best=2))
    world.run()
    world.housekeeping.finish()
    assert saved(world) == {1, 4}
    logs = {world.files.trial(number) for number in range(6)}
    assert {path for path in logs if path.exists()} == logs, "logs stay"


def test_nothing_goes_where_nobody_asked(make_world: Callable[..., World]) -> None:
    world = make_world(saves(0.3, None, 0.5, 0.7))
    world.run()
    world.housekeeping.finish()
    assert saved(world) == {0, 1, 2, 3}


def test_losers_go_for_the_limit(make_world: Callable[..., World]) -> None:
    program = saves(0.3, 0.9, None, 0.5, 0.7, 0.1)
    world = make_world(program, n_trials=6, retention=RetentionRule(max_bytes=3 * SIZE))
    world.run()
    world.housekeeping.finish()
    # Which of the others depends on who ran when the disk was full.
    assert 1 in saved(world)
    assert 2 not in saved(world)
    assert len(saved(world)) == 3
    assert said(world) == []


def test_interrupted_trials_keep_theirs(make_world: Callable[..., World]) -> None:
    rule = RetentionRule(n_best=1, max_bytes=1)
    world = make_world(saves_and_sleeps, retention=rule)
    world.turn(2.0)
    world.inbox.later(1.0, world.interrupt)
    world.run()
    world.housekeeping.finish()
    assert saved(world) == {0, 1}


def test_failed_trial_that_is_tried_again_keeps_its(make_world: Callable[..., World]) -> None:
    seen = []

    def fails_once(worker: FakeWorker) -> None:
        worker.later(0.1, worker.hello)
        if worker.request.assign.attempt_number == 1:
            worker.later(0.5, lambda: save(worker))
            worker.later(5.0, worker.fail)
        else:
            seen.append(Path(worker.request.assign.checkpoint_dir).exists())
            worker.later(5.0, lambda: seen.append(saved(world) == {0}))
            worker.later(5.0, worker.fail)

    rule = RetentionRule(n_best=1, max_bytes=1)
    world = make_world(fails_once, n_trials=1, retries=1, retention=rule)
    world.run()
    assert seen == [True, True]
    world.housekeeping.finish()
    assert saved(world) == set()


def test_nothing_goes_while_the_database_does_not_know_of_the_end(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(saves(0.1, 0.2, 0.3, 0.4), retention=RetentionRule(n_best=1))
    monkeypatch.setattr(world.search, "unsaved", lambda: ["trial 0 (0.1)"])
    world.run()
    world.housekeeping.finish()
    assert saved(world) == {0, 1, 2, 3}


def test_running_trials_over_the_limit_are_told_once(make_world: Callable[..., World]) -> None:
    world = make_world(saves_and_sleeps, retention=RetentionRule(max_bytes=SIZE))
    world.turn(2.0)
    # A thread sweeps: what it says is taken by a later turn.
    for _ in range(1000):
        world.turn(11.0)
        if said(world):
            break
        time.sleep(0.01)
    for _ in range(4):
        world.turn(11.0)
        world.housekeeping.finish()
        world.turn()
    (note,) = said(world)
    assert note.startswith("Checkpoints take 64 MiB more than checkpoints.max_disk (64 MiB)")
    assert saved(world) == {0, 1}


def test_folder_of_an_older_trial_of_the_same_number_is_left_alone(
    make_world: Callable[..., World],
) -> None:
    """The database was restored from a backup, and the new trials have run on another host."""
    program = saves(0.3, 0.9, 0.5, 0.1)
    world = make_world(program, n_trials=4, retention=RetentionRule(n_best=1))

    def is_of_another(number: int, name: str, value: str) -> None:
        file = world.files.trial(number) / IDENTITY_NAME
        content = json.loads(file.read_text())
        file.write_text(json.dumps({**content, name: value}))

    world.inbox.later(4.0, lambda: is_of_another(0, "begun_at", "2020-01-01T00:00:00.000000"))
    world.inbox.later(9.0, lambda: is_of_another(2, "study", "0" * 32))
    world.run()
    world.housekeeping.finish()
    assert saved(world) == {0, 1, 2}
    assert said(world) == []


# -- one sweep -----------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> StudyFiles:
    return StudyFiles(folder=tmp_path, study="study")


def put(files: StudyFiles, *numbers: int) -> None:
    for number in numbers:
        deep = files.checkpoints(number) / "step-1"
        deep.mkdir(parents=True)
        make_file(deep / "part")


def lost(*numbers: int) -> list[EndedTrial]:
    return [EndedTrial(number=n, end=End.FAILED, ended_at_s=float(n)) for n in numbers]


def there(files: StudyFiles) -> set[int]:
    return {number for number in files.trials() if files.checkpoints(number).exists()}


def test_trial_of_another_database_is_left_alone_and_counts(files: StudyFiles) -> None:
    put(files, 0, 1, 2)
    (note,) = Sweeper(files, RetentionRule(max_bytes=SIZE)).sweep(lost(1))
    assert there(files) == {0, 2}
    assert "Checkpoints take" in note


def test_excess_is_told_again_after_it_was_gone(files: StudyFiles) -> None:
    sweeper = Sweeper(files, RetentionRule(max_bytes=SIZE))
    put(files, 0, 1)
    assert len(sweeper.sweep([])) == 1
    assert sweeper.sweep([]) == []
    assert sweeper.sweep(lost(1)) == []
    put(files, 2)
    assert len(sweeper.sweep(lost(1))) == 1


def test_what_a_killed_dispatcher_began_to_remove_is_removed(files: StudyFiles) -> None:
    put(files, 0, 1)
    files.checkpoints(0).rename(files.removed_checkpoints(0))
    assert Sweeper(files, RetentionRule(n_best=1)).sweep([]) == []
    assert there(files) == {1}
    assert not files.removed_checkpoints(0).exists()


def test_folder_that_is_a_link_is_left_alone(files: StudyFiles, tmp_path: Path) -> None:
    put(files, 0)
    elsewhere = tmp_path / "elsewhere"
    files.checkpoints(0).rename(elsewhere)
    files.checkpoints(0).symlink_to(elsewhere)
    assert Sweeper(files, RetentionRule(n_best=1)).sweep(lost(0)) == []
    assert (elsewhere / "step-1" / "part").exists()


def test_what_another_dispatcher_removed_is_no_mistake(
    files: StudyFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(files, 0, 1)
    sweeper = Sweeper(files, RetentionRule(max_bytes=2 * SIZE))
    assert sweeper.sweep(lost(0, 1)) == []
    files.checkpoints(0).rename(files.root.parent / "gone")
    put(files, 2)
    assert sweeper.sweep(lost(0, 1)) == []
    assert there(files) == {1, 2}


def test_what_cannot_be_removed_is_told_once(
    files: StudyFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(files, 0, 1)
    rename = Path.rename

    def refuse(path: Path, target: Path) -> Path:
        if path == files.checkpoints(0):
            raise PermissionError(13, "Permission denied")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse)
    sweeper = Sweeper(files, RetentionRule(n_best=1))
    (note,) = sweeper.sweep(lost(0, 1))
    assert note == ("Checkpoints of trial 0 cannot be removed: [Errno 13] Permission denied.")
    assert sweeper.sweep(lost(0, 1)) == []
    assert there(files) == {0}
