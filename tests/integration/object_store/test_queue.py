"""What is uploaded next, and what becomes of an upload that fails; the process is played."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.store.recorder.recorded import GPUS, Store, lease
from tests.unit.checkpoints.test_scan import save
from tuner.checkpoints.object_store.address import StoreAddress
from tuner.checkpoints.object_store.keys import StoreKeys
from tuner.checkpoints.object_store.orders import Answer, Order, Work
from tuner.checkpoints.object_store.process import Transfers
from tuner.checkpoints.paths import StudyFiles
from tuner.checkpoints.scan import look_at
from tuner.dispatch.object_store.uploads import Uploads
from tuner.domain.attempt import Attempt
from tuner.search.population.stored_copies import StoredCopies
from tuner.store.records.recorder import Recorder

ADDRESS = StoreAddress(scheme="s3", bucket="bucket")


class PlayedTransfers(Transfers):
    """Keeps orders until the test answers them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(ADDRESS, folder / "links", folder / "log")
        self.orders: list[Order] = []

    def _tell(self, order: Order) -> None:
        self.orders.append(order)

    @property
    def names(self) -> list[str]:
        """What is under way: trial and file."""
        return [f"{Path(each.path).parts[-3]} {Path(each.path).name}" for each in self.orders]


class Queue:
    """Uploads of one study, with trials whose checkpoints the test saves."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(f"sqlite:///{folder}/study.db")
        self.recorder: Recorder = self.store.recorder()
        self.files = StudyFiles(folder=folder, study="s")
        self.transfers = PlayedTransfers(folder)
        self.said: list[str] = []
        keys = StoreKeys(address=ADDRESS, files=self.files, study_id="0f" * 16)
        self.uploads = Uploads(self.transfers, self.recorder.uploads, keys, 2, self.said.append)

    def attempt(self, gpu: int = 0) -> Attempt:
        attempt = self.store.attempt()
        lease(self.recorder, attempt, GPUS[gpu])
        self.recorder.commit()
        return attempt

    def saves(self, attempt: Attempt, step: int) -> Path:
        folder = self.files.checkpoints(attempt.trial_number)
        folder.parent.mkdir(parents=True, exist_ok=True)
        path = save(folder, step, at_s=1000.0 + step)
        self.offer(attempt, path)
        return path

    def offer(self, attempt: Attempt, path: Path) -> None:
        state = look_at(path)
        assert state is not None
        self.uploads.offer(attempt, state)

    def answer(self, now_s: float = 0.0, problem: str = "", **words: bool) -> None:
        """Answers the oldest order."""
        order = self.transfers.orders.pop(0)
        key = "" if problem else order.key
        self.uploads.hear(Answer(id=order.id, key=key, problem=problem, **words), now_s)
        self.uploads.poll(now_s)

    def steps(self, attempt: Attempt) -> list[int]:
        return [each.step for each in self.recorder.uploads.of_trial(attempt.trial_id)]


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    queue = Queue(tmp_path)
    yield queue
    queue.store.database.close()


def test_the_newest_of_each_trial_goes_first_and_logs_last(queue: Queue) -> None:
    one, other = queue.attempt(0), queue.attempt(1)
    queue.files.trial(one.trial_number).mkdir(parents=True)
    queue.files.log(one.trial_number, 1).write_text("printed")
    queue.uploads.offer_logs(one, queue.files)
    for step in (1, 2, 3):
        queue.saves(one, step)
    queue.saves(other, 1)
    queue.uploads.poll(0.0)
    assert queue.transfers.names == ["trial-0 step-3.pt", "trial-1 step-1.pt"]
    queue.answer()
    queue.answer()
    assert [Path(each.path).name for each in queue.transfers.orders] == ["attempt-1.log"]
    assert (queue.steps(one), queue.steps(other)) == ([3], [1])
    queue.answer()
    assert queue.uploads.n_left == 0


def test_what_the_store_has_is_not_sent_again(queue: Queue) -> None:
    attempt = queue.attempt()
    path = queue.saves(attempt, 1)
    queue.uploads.poll(0.0)
    queue.answer()
    queue.offer(attempt, path)
    queue.uploads.poll(0.0)
    assert queue.transfers.orders == []
    assert queue.uploads.n_left == 0


def test_after_a_failure_the_newest_is_sent_once_the_pause_is_over(queue: Queue) -> None:
    attempt = queue.attempt()
    queue.saves(attempt, 1)
    queue.uploads.poll(0.0)
    queue.saves(attempt, 2)
    busy = "s3://bucket does not answer (503)"
    queue.answer(0.0, busy, is_temporary=True)
    assert queue.transfers.orders == []
    queue.uploads.poll(1.5)
    assert queue.transfers.names == ["trial-0 step-2.pt"]
    # For a minute, with longer and longer pauses, of which people hear once.
    now_s, n_tries = 1.5, 0
    while now_s < 60.0:
        queue.answer(now_s, busy, is_temporary=True)
        while not queue.transfers.orders:
            now_s += 0.25
            queue.uploads.poll(now_s)
        n_tries += 1
    assert n_tries < 10
    queue.answer(now_s)
    assert queue.steps(attempt) == [2]
    first, last = queue.said
    assert first.startswith("Checkpoints are not uploaded now: checkpoints.store s3://bucket does")
    assert last == "Uploads to s3://bucket succeed again."


def test_a_state_that_is_gone_is_left_out(queue: Queue) -> None:
    attempt = queue.attempt()
    queue.saves(attempt, 1)
    queue.uploads.poll(0.0)
    queue.answer(is_gone=True)
    assert queue.uploads.n_left == 0
    assert queue.said == []
    assert queue.steps(attempt) == []


def test_a_copy_of_a_file_is_one_object(queue: Queue) -> None:
    parent, child = queue.attempt(0), queue.attempt(1)
    path = queue.saves(parent, 4)
    queue.uploads.poll(0.0)
    folder = queue.files.checkpoints(child.trial_number)
    folder.mkdir(parents=True)
    os.link(path, folder / path.name)
    queue.offer(child, folder / path.name)
    queue.uploads.poll(0.0)
    # The parent's upload is under way.
    assert queue.transfers.names == ["trial-0 step-4.pt"]
    queue.answer()
    assert queue.transfers.orders == []
    (of_parent,) = queue.recorder.uploads.of_trial(parent.trial_id)
    (of_child,) = queue.recorder.uploads.of_trial(child.trial_id)
    assert of_parent.uri == of_child.uri


def test_only_the_newest_objects_of_a_trial_are_kept(queue: Queue) -> None:
    attempt = queue.attempt()
    for step in (1, 2, 3):
        queue.saves(attempt, step)
        queue.uploads.poll(0.0)
        queue.answer()
    assert queue.steps(attempt) == [3, 2]
    (unwanted,) = queue.recorder.uploads.take_unwanted()
    assert "/step-1." in unwanted


def test_a_copy_begins_where_its_parent_has_no_file(queue: Queue) -> None:
    """As on another machine: the parent's checkpoints are in the store alone."""
    parent, replaced, child = queue.attempt(0), queue.attempt(1), queue.store.attempt()
    path = queue.saves(parent, 4)
    queue.uploads.poll(0.0)
    queue.answer()
    path.unlink()
    copies = StoredCopies(queue.files, lambda _number: True, queue.recorder.uploads)
    assert copies.has_state(parent.trial_number)
    assert copies.take(parent.trial_number, replaced.trial_number) == 4
    assert copies.is_here(replaced.trial_number)
    assert copies.give(replaced.trial_number, child.trial_number) == 4
    assert queue.recorder.uploads.of_trial(child.trial_id)[0].step == 4
    orders = [each for each in queue.transfers.orders if each.work is Work.PUT]
    assert orders == []
