"""A file server that does not answer holds up neither the end of a study nor a process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.dispatcher.saving.test_saved_states import folder_of
from tests.integration.dispatcher.world import FakeWorker, World
from tests.unit.checkpoints.test_scan import save
from tuner.checkpoints.retention import RetentionRule
from tuner.dispatch.upkeep import checkpoint_sweeper, checkpoint_sync
from tuner.launch import log_limit
from tuner.launch.log_limit import LogLimit

#: In place of the seconds that a last look may take.
_SHORT_S = 0.05


@pytest.fixture
def stall() -> Iterator[Callable[..., object]]:
    """What reads from a file server that stands still; it answers after the test."""
    answers = threading.Event()

    def read(*_: object) -> object:
        answers.wait()
        return {}

    yield read
    answers.set()


def saves_once(worker: FakeWorker) -> None:
    folder_of(worker).parent.mkdir(parents=True, exist_ok=True)
    worker.later(0.1, worker.hello)
    worker.later(0.2, lambda: (save(folder_of(worker), 1), worker.complete()))


# A join without a limit ends in the limit of the test.
@pytest.mark.timeout(60)
def test_study_ends_where_checkpoints_cannot_be_looked_at(
    make_world: Callable[..., World],
    monkeypatch: pytest.MonkeyPatch,
    stall: Callable[..., object],
) -> None:
    monkeypatch.setattr(checkpoint_sync, "_LAST_WAIT_S", _SHORT_S)
    monkeypatch.setattr(checkpoint_sync, "look", stall)
    world = make_world(saves_once, n_devices=1, n_trials=2)
    assert world.run().n_completed == 2
    world.dispatcher.keep_house()


@pytest.mark.timeout(60)
def test_study_ends_where_checkpoints_cannot_be_removed(
    make_world: Callable[..., World],
    monkeypatch: pytest.MonkeyPatch,
    stall: Callable[..., object],
) -> None:
    monkeypatch.setattr(checkpoint_sweeper, "_LAST_WAIT_S", _SHORT_S)
    monkeypatch.setattr(checkpoint_sweeper, "_sizes", stall)
    world = make_world(saves_once, n_devices=1, n_trials=2, retention=RetentionRule(n_best=1))
    assert world.run().n_completed == 2
    world.dispatcher.keep_house()


@pytest.mark.timeout(60)
def test_launcher_closes_where_logs_cannot_be_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stall: Callable[..., object]
) -> None:
    monkeypatch.setattr(log_limit, "_CLOSE_S", _SHORT_S)
    monkeypatch.setattr(log_limit._Limit, "apply", stall)
    limit = LogLimit(1)
    limit.watch(tmp_path / "log")
    limit.close()
