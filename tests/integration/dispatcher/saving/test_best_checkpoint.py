"""What `load_best` gives of the state that the best trial saved."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import tuner
from tests.integration.dispatcher.world import FakeWorker, World
from tuner.trials.checkpoints import CheckpointFolder

VALUES = (0.2, 0.9, 0.4, 0.1)


def saves(worker: FakeWorker) -> None:
    folder = CheckpointFolder(Path(worker.request.assign.checkpoint_dir))

    def end() -> None:
        for step in (1, 2):
            folder.save({"trial": worker.trial_number, "step": step}, step)
        worker.complete(VALUES[worker.trial_number])

    worker.later(0.1, worker.hello)
    worker.later(1.0, end)


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    world = make_world(saves)
    world.run()
    return world


def test_newest_state_of_the_best_trial(world: World) -> None:
    best = tuner.load_best(world.url)
    assert best.checkpoint == str(world.files.checkpoints(1) / "step-2.pt")
    assert best.load_checkpoint() == {"trial": 1, "step": 2}


def test_torn_file_is_not_it(world: World) -> None:
    newest = world.files.checkpoints(1) / "step-2.pt"
    newest.write_bytes(newest.read_bytes()[:-30])
    best = tuner.load_best(world.url)
    assert best.checkpoint == str(world.files.checkpoints(1) / "step-1.pt")
    assert best.load_checkpoint() == {"trial": 1, "step": 1}


def test_without_one_it_is_none(world: World) -> None:
    shutil.rmtree(world.files.checkpoints(1))
    best = tuner.load_best(world.url)
    assert best.checkpoint is None
    assert best.load_checkpoint() is None
