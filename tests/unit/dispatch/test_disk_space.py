"""When trials start again that found no room on their disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.dispatch.upkeep.disk_space import Room
from tuner.domain.attempt import Cause, Ending, Outcome

GIB = 1024**3
NO_ROOM = Ending(
    outcome=Outcome.FAILED,
    cause=Cause.EXCEPTION,
    detail="OSError: [Errno 28] No space left on device",
)


class Disk:
    """With room for as much as the test says."""

    def __init__(self) -> None:
        self.free_bytes = GIB
        self.said: list[str] = []
        self.room = Room(Path("study"), self.said.append, lambda folder: self.free_bytes)


@pytest.mark.parametrize(
    "ending",
    [
        pytest.param(Ending(outcome=Outcome.FAILED, detail="ValueError"), id="other-failure"),
        pytest.param(
            Ending(outcome=Outcome.PRUNED, detail="No space left on device"), id="no-failure"
        ),
    ],
)
def test_other_endings_hold_nothing_up(ending: Ending) -> None:
    disk = Disk()
    assert not disk.room.note(ending, 0.0)
    assert disk.room.is_there(0.0)
    assert disk.said == []


def test_nothing_starts_before_there_is_more_room() -> None:
    disk = Disk()
    for _ in range(2):
        assert disk.room.note(NO_ROOM, 10.0)
    assert disk.room.is_awaited
    assert not disk.room.is_there(11.0)
    disk.free_bytes += 1024
    assert not disk.room.is_there(12.0)
    disk.free_bytes *= 2
    assert disk.room.is_there(13.0)
    assert disk.room.is_there(13.0)
    assert not disk.room.is_awaited
    first, last = disk.said
    assert first.startswith("A trial found no room on its disk. 1.0 GiB are free where study is;")
    assert last == "There is room on the disk again."


def waits_s(disk: Disk, *, n: int) -> list[int]:
    """How long it takes each time, where nothing changes, until trials may start again."""
    found = []
    for _ in range(n):
        disk.room.note(NO_ROOM, 0.0)
        found.append(next(second for second in range(1000) if disk.room.is_there(second)))
    return found


def test_it_is_tried_again_in_any_case_after_longer_and_longer() -> None:
    disk = Disk()
    assert waits_s(disk, n=8) == [5, 10, 20, 40, 80, 160, 300, 300]
    assert disk.said[-1] == "The disk is tried again."
    disk.room.note(Ending(outcome=Outcome.COMPLETED), 0.0)
    assert waits_s(disk, n=2) == [5, 10]


TORCH = "RuntimeError: unable to write to file </torch_12_34_0>: No space left on device (28)"


@pytest.mark.parametrize(
    "text",
    [
        TORCH,
        "RuntimeError: unable to write to file </torch_1234>: No space left on device",
        "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. It is possible "
        "that dataloader's workers are out of shared memory. Please try to raise your shared "
        "memory limit.",
        "OSError: [Errno 28] No space left on device: '/psm_21467_46075'",
        "shmutils.cc:72 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-aB "
        "(size 9637888), error: No space left on device (28)",
    ],
)
def test_full_shared_memory_is_no_full_disk(text: str) -> None:
    disk = Disk()
    disk.free_bytes = 0
    judged = disk.room.judged(1, Ending(outcome=Outcome.FAILED, detail=text))
    assert judged.detail.startswith(text)
    assert "--shm-size" in judged.detail
    assert not disk.room.note(judged, 0.0)


def test_checkpoint_whose_name_is_like_that_is_on_a_disk() -> None:
    detail = "OSError: [Errno 28] No space left on device: '/data/torch_1/checkpoints/5.pt'"
    assert Disk().room.note(Ending(outcome=Outcome.FAILED, detail=detail), 0.0)


def test_what_recurs_for_one_trial_while_there_is_room_is_its_failure() -> None:
    disk = Disk()
    found = [disk.room.judged(1, NO_ROOM) for _ in range(4)]
    assert found[:3] == [NO_ROOM] * 3
    assert "another file system is full" in found[3].detail
    assert not disk.room.note(found[3], 0.0)
    assert disk.room.judged(2, NO_ROOM) == NO_ROOM


@pytest.mark.parametrize("text", ["No space left on device", "Disk quota exceeded"])
def test_full_disk_or_quota_is_waited_for_however_often(text: str) -> None:
    disk = Disk()
    disk.free_bytes = 0 if "space" in text else 1000 * GIB
    ending = Ending(outcome=Outcome.FAILED, detail=text)
    for _ in range(20):
        assert disk.room.note(disk.room.judged(1, ending), 0.0)
