"""The process that uploads: what becomes of its orders when the network or itself is cut off."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.object_stores import NewBucket
from tests.unit.checkpoints.test_scan import save
from tuner.checkpoints.layout import is_whole
from tuner.checkpoints.object_store.orders import Answer, Work
from tuner.checkpoints.object_store.process import Transfers

pytestmark = [pytest.mark.programs, pytest.mark.slow]

_UNAVAILABLE = b"HTTP/1.1 503 Slow Down\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_PATIENCE_S = 60.0


@pytest.fixture
def transfers(
    bucket: NewBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Transfers]:
    for name, value in bucket.environ.items():
        monkeypatch.setenv(name, value)
    found = Transfers(bucket.address, tmp_path / "links", tmp_path / "log")
    yield found
    found.close()


def answer_of(transfers: Transfers, order: int) -> Answer:
    return wait_for(transfers, lambda answers: next((a for a in answers if a.id == order), None))


def wait_for(transfers: Transfers, find: Callable[[list[Answer]], Answer | None]) -> Answer:
    give_up_at_s = time.monotonic() + _PATIENCE_S
    answers: list[Answer] = []
    while (found := find(answers)) is None:
        assert time.monotonic() < give_up_at_s, "no answer"
        transfers.wait(0.05)
        answers += transfers.take()
    return found


def put(transfers: Transfers, path: Path, key: str) -> int:
    stat = path.stat()
    return transfers.send(
        Work.PUT, key, path, written_at_ns=stat.st_mtime_ns, size_bytes=stat.st_size
    )


def large(folder: Path) -> Path:
    """A state that goes out in parts."""
    path = save(folder, 40_000_000)
    assert path.stat().st_size > 32 * 1024**2
    return path


def test_state_comes_back_with_its_time(
    bucket: NewBucket, transfers: Transfers, tmp_path: Path
) -> None:
    path = save(tmp_path / "checkpoints", 7, at_s=1234.5)
    stamp = f"{path.stat().st_mtime_ns:x}"
    order = put(transfers, path, f"p/trial-0/attempt-1/step-7.{stamp}.pt")
    assert answer_of(transfers, order).problem == ""
    assert bucket.names() == [f"trial-0/attempt-1/step-7.{stamp}.pt"]
    other = tmp_path / "elsewhere"
    order = transfers.send(Work.GET, f"p/trial-0/attempt-1/step-7.{stamp}.pt", other)
    assert answer_of(transfers, order).problem == ""
    (copy,) = other.iterdir()
    assert copy.read_bytes() == path.read_bytes()
    assert (copy.name, copy.stat().st_mtime) == ("step-7.pt", 1234.5)


def test_process_that_is_killed_in_an_upload_is_started_again(
    bucket: NewBucket, transfers: Transfers, tmp_path: Path
) -> None:
    path = large(tmp_path / "checkpoints")
    order = put(transfers, path, "p/state.pt")
    bucket.proxy.freeze()
    time.sleep(0.5)
    assert transfers.pid is not None
    os.kill(transfers.pid, signal.SIGKILL)
    bucket.proxy.cut()
    bucket.proxy.thaw()
    bucket.proxy.restore()
    assert answer_of(transfers, order).problem == ""
    assert bucket.open().size_of("p/state.pt") == path.stat().st_size


def test_upload_that_is_cut_in_the_middle_leaves_nothing_torn(
    bucket: NewBucket, transfers: Transfers, tmp_path: Path
) -> None:
    path = large(tmp_path / "checkpoints")
    bucket.proxy.cut_at(b"partNumber=2", is_heard=False)
    order = put(transfers, path, "p/state.pt")
    answer = answer_of(transfers, order)
    assert bucket.proxy.n_cut >= 1
    size = bucket.open().size_of("p/state.pt")
    assert size == (None if answer.problem else path.stat().st_size)
    if answer.problem:
        assert answer.is_temporary
        assert answer_of(transfers, put(transfers, path, "p/state.pt")).problem == ""
    assert b"".join(bucket.open().get("p/state.pt")) == path.read_bytes()


def test_download_that_is_cut_leaves_nothing(
    bucket: NewBucket, transfers: Transfers, tmp_path: Path
) -> None:
    path = large(tmp_path / "checkpoints")
    key = f"p/step-40000000.{path.stat().st_mtime_ns:x}.pt"
    assert answer_of(transfers, put(transfers, path, key)).problem == ""
    bucket.proxy.cut_at(b"GET /", is_heard=True)
    folder = tmp_path / "elsewhere"
    order = transfers.send(Work.GET, key, folder, size_bytes=path.stat().st_size)
    answer = answer_of(transfers, order)
    left = list(folder.iterdir())
    assert [each for each in left if not is_whole(each)] == []
    assert bool(left) == (not answer.problem)


def test_store_that_is_overloaded_is_told_apart_from_one_that_refuses(
    bucket: NewBucket, transfers: Transfers, tmp_path: Path
) -> None:
    path = save(tmp_path / "checkpoints", 3)
    bucket.proxy.answer = _UNAVAILABLE
    answer = answer_of(transfers, put(transfers, path, "p/state.pt"))
    assert (answer.is_temporary, "503" in answer.problem) == (True, True)
    bucket.proxy.answer = None
    assert answer_of(transfers, put(transfers, path, "p/state.pt")).problem == ""


def test_two_writers_of_one_name_write_one_state(
    bucket: NewBucket, transfers: Transfers, tmp_path: Path
) -> None:
    path = save(tmp_path / "checkpoints", 5)
    orders = {put(transfers, path, "p/state.pt"), put(transfers, path, "p/state.pt")}

    def all_of_them(answers: list[Answer]) -> Answer | None:
        return answers[0] if {each.id for each in answers} == orders else None

    wait_for(transfers, all_of_them)
    assert b"".join(bucket.open().get("p/state.pt")) == path.read_bytes()


def test_state_that_was_replaced_meanwhile_is_not_uploaded(
    bucket: NewBucket, transfers: Transfers, tmp_path: Path
) -> None:
    path = save(tmp_path / "checkpoints", 5, at_s=1000.0)
    order = transfers.send(Work.PUT, "p/state.pt", path, written_at_ns=999)
    assert answer_of(transfers, order).is_gone
    path.unlink()
    order = transfers.send(Work.PUT, "p/state.pt", path, written_at_ns=1000 * 10**9)
    assert answer_of(transfers, order).is_gone
    assert bucket.names() == []
