"""Dispatchers of one study that claim its folder at the same moment."""

import contextlib
import fcntl
import json
import multiprocessing
import os
from collections.abc import Callable, Iterator
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from tuner.checkpoints import study_folder
from tuner.checkpoints.paths import StudyFiles
from tuner.checkpoints.study_folder import StudyFolder
from tuner.checkpoints.trial_folders import StudyKey
from tuner.errors import ConfigError

OURS = StudyKey(id="a" * 32, adopts_below=0)
THEIRS = StudyKey(id="b" * 32, adopts_below=0)


def _take_over_slowly(files: StudyFiles, has_begun: Event, may_end: Event) -> None:
    """As a dispatcher of the same study does whose disk is slow."""
    files.root.mkdir(parents=True)
    lock = os.open(files.root / ".lock", os.O_RDWR | os.O_CREAT)
    fcntl.lockf(lock, fcntl.LOCK_EX)
    has_begun.set()
    may_end.wait(60)
    files.owner_file.write_text(json.dumps({"study": OURS.id}))
    os.close(lock)


def _use(files: StudyFiles, has_begun: Event, may_end: Event) -> None:
    folder = StudyFolder(files, THEIRS, has_begun=False)
    has_begun.set()
    may_end.wait(60)
    folder.close()


@pytest.fixture
def files(tmp_path: Path) -> StudyFiles:
    return StudyFiles(folder=tmp_path, study="small")


@contextlib.contextmanager
def another(
    target: Callable[[StudyFiles, Event, Event], None], files: StudyFiles
) -> Iterator[Event]:
    """A second process that uses the folder; gives the event that ends it."""
    context = multiprocessing.get_context("spawn")
    has_begun, may_end = context.Event(), context.Event()
    process = context.Process(target=target, args=(files, has_begun, may_end))
    process.start()
    try:
        assert has_begun.wait(60)
        yield may_end
    finally:
        may_end.set()
        process.join(60)
    assert process.exitcode == 0


@pytest.mark.slow
def test_waits_for_one_that_takes_the_folder_over(
    files: StudyFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three dispatchers started at once on a busy disk; one of them was refused, with code 2."""
    with another(_take_over_slowly, files) as may_end:
        # The disk of the other dispatcher answers after this one has waited once, longer than it
        # waits for a folder in use.
        monkeypatch.setattr(study_folder, "_PATIENCE_S", 0.0)
        monkeypatch.setattr(study_folder.time, "sleep", lambda _: may_end.set())
        folder = StudyFolder(files, OURS, has_begun=False)
    assert folder.note == ""
    folder.close()


def test_a_take_over_without_an_end_is_no_study_of_another_database(
    files: StudyFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_folder, "_TAKE_OVER_PATIENCE_S", 0.0)
    with (
        another(_take_over_slowly, files),
        pytest.raises(ConfigError, match=f"has been preparing {files.root} for 0 s") as refusal,
    ):
        StudyFolder(files, OURS, has_begun=False)
    assert "another database" not in str(refusal.value)


def test_a_folder_in_use_by_another_study_is_refused(
    files: StudyFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_folder, "_PATIENCE_S", 0.0)
    with (
        another(_use, files),
        pytest.raises(ConfigError, match="another database is running and has its files in"),
    ):
        StudyFolder(files, OURS, has_begun=False)
    folder = StudyFolder(files, OURS, has_begun=False)
    assert json.loads(files.owner_file.read_text()) == {"study": OURS.id}
    folder.close()
