"""Checkpoints are whole or not there, and the newest whole one is found."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import IO

import numpy
import pytest
import torch

from tuner.trials.checkpoints import CheckpointFolder, load_state


@pytest.fixture
def folder(tmp_path: Path) -> CheckpointFolder:
    return CheckpointFolder(tmp_path / "checkpoints")


def _names(folder: CheckpointFolder) -> set[str]:
    return {path.name for path in folder.path.iterdir()}


def test_state_comes_back_as_it_was(folder: CheckpointFolder) -> None:
    weights = torch.arange(6.0).reshape(2, 3)
    state = {"model": {"weight": weights}, "epoch": 3, "best": 0.5, "names": ["a", "b"]}
    file = folder.save(state, step=3)
    assert file == folder.path / "step-3.pt"
    loaded = folder.load()
    assert loaded is not None
    assert torch.equal(loaded["model"].pop("weight"), weights)
    assert loaded == {"model": {}, "epoch": 3, "best": 0.5, "names": ["a", "b"]}


def test_empty_folder_has_no_state(folder: CheckpointFolder) -> None:
    assert folder.load() is None


def test_newest_two_are_kept_by_number(folder: CheckpointFolder) -> None:
    for step in (8, 9, 10, 11):
        folder.save({"step": step}, step)
    assert _names(folder) == {"step-10.pt", "step-11.pt"}
    assert folder.load() == {"step": 11}


def test_same_step_again_replaces_the_file(folder: CheckpointFolder) -> None:
    folder.save({"try": 1}, 5)
    folder.save({"try": 2}, 5)
    assert _names(folder) == {"step-5.pt"}
    assert folder.load() == {"try": 2}


def test_save_that_fails_leaves_the_older_state(
    folder: CheckpointFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.save({"step": 1}, 1)

    def disk_full(_state: object, file: IO[bytes]) -> None:
        file.write(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", disk_full)
    with pytest.raises(OSError, match="No space left"):
        folder.save({"step": 2}, 2)
    assert _names(folder) == {"step-1.pt"}
    assert folder.load() == {"step": 1}


def test_why_a_file_could_not_be_written_is_said(folder: CheckpointFolder) -> None:
    """torch itself speaks of an unexpected position."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            folder.save({"weights": torch.zeros(1_000_000)}, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert _names(folder) == set()


def test_nothing_has_the_final_name_before_it_is_whole(
    folder: CheckpointFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    names_while_writing = []
    save = torch.save

    def watched(state: object, file: IO[bytes]) -> None:
        names_while_writing.append(_names(folder))
        save(state, file)

    monkeypatch.setattr(torch, "save", watched)
    folder.save({"step": 1}, 1)
    ((name,),) = names_while_writing
    assert not name.endswith(".pt")
    assert _names(folder) == {"step-1.pt"}


@pytest.mark.parametrize("kept", [0.0, 0.01, 0.5, 0.99])
def test_torn_newest_file_is_skipped(folder: CheckpointFolder, kept: float) -> None:
    folder.save({"step": 1}, 1)
    newest = folder.save({"step": 2, "weight": torch.zeros(1000)}, 2)
    content = newest.read_bytes()
    newest.write_bytes(content[: int(len(content) * kept)])
    assert folder.load() == {"step": 1}


def test_only_torn_files_are_as_good_as_none(folder: CheckpointFolder) -> None:
    folder.save({"step": 1}, 1).write_bytes(b"not a checkpoint")
    assert folder.load() is None


class _Malicious:
    """Unpickling it would make a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.path,))


def test_nothing_is_executed_by_loading(folder: CheckpointFolder, tmp_path: Path) -> None:
    folder.save({"step": 1}, 1)
    torch.save({"step": _Malicious(tmp_path / "executed")}, folder.path / "step-2.pt")
    assert folder.load() == {"step": 1}
    assert not (tmp_path / "executed").exists()


def test_state_that_could_not_be_loaded_is_refused_and_the_last_one_kept(
    folder: CheckpointFolder,
) -> None:
    folder.save({"best": 0.25}, 1)
    with pytest.raises(TypeError, match="cannot be loaded again safely"):
        folder.save({"best": numpy.float64(0.5)}, 2)
    assert folder.load() == {"best": 0.25}
    assert _names(folder) == {"step-1.pt"}


def test_trial_that_starts_over_keeps_what_it_has_just_saved(folder: CheckpointFolder) -> None:
    for step in (8, 9, 1):
        folder.save({"step": step}, step)
    assert folder.load() == {"step": 1}
    assert _names(folder) == {"step-9.pt", "step-1.pt"}


def test_other_files_are_left_alone(folder: CheckpointFolder) -> None:
    for name in ("best.pt", "step.pt", "last.pt", "step-9.txt"):
        (folder.path / name).write_text("the user's own")
    for step in (1, 2, 3):
        folder.save({"step": step}, step)
    assert folder.load() == {"step": 3}
    assert _names(folder) == {
        *("best.pt", "step.pt", "last.pt", "step-9.txt"),
        *("step-2.pt", "step-3.pt"),
    }


def test_more_or_fewer_are_kept_on_request(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, n_newest=3)
    for step in range(5):
        folder.save({"step": step}, step)
    assert _names(folder) == {"step-2.pt", "step-3.pt", "step-4.pt"}


def test_what_is_half_written_is_no_state_and_is_left_to_who_writes_it(
    folder: CheckpointFolder,
) -> None:
    (folder.path / "step-1.partial-1-elsewhere-12345").write_bytes(b"half of it")
    assert folder.load() is None
    folder.save({"step": 2}, 2)
    assert _names(folder) == {"step-1.partial-1-elsewhere-12345", "step-2.pt"}
    assert folder.load() == {"step": 2}


# -- folders with the files of a framework -------------------------------------------------------


def _alone() -> None:
    """A single process waits for no other rank."""


def _save_files(folder: CheckpointFolder, step: int, text: str) -> None:
    with folder.new(step, 0, _alone) as target:
        (target / "inner").mkdir()
        (target / "inner" / "model.txt").write_text(text)


def test_newest_folder_of_files_is_found(folder: CheckpointFolder) -> None:
    assert folder.newest() is None
    for step in (1, 2, 3):
        _save_files(folder, step, f"of step {step}")
    assert _names(folder) == {"step-2", "step-3"}
    newest = folder.newest()
    assert newest == folder.path / "step-3"
    assert (newest / "inner" / "model.txt").read_text() == "of step 3"


def test_folder_of_files_is_replaced_by_a_new_one_of_its_step(folder: CheckpointFolder) -> None:
    _save_files(folder, 1, "old")
    _save_files(folder, 1, "new")
    assert _names(folder) == {"step-1"}
    assert (folder.path / "step-1" / "inner" / "model.txt").read_text() == "new"


def test_block_that_raises_leaves_the_older_files(folder: CheckpointFolder) -> None:
    _save_files(folder, 1, "old")
    with pytest.raises(FileNotFoundError), folder.new(2, 0, _alone) as target:
        (target / "absent" / "half.txt").write_text("half")
    assert _names(folder) == {"step-1"}


@pytest.mark.parametrize("damage", ["other", "shorter", "gone"])
def test_damaged_folder_of_files_is_skipped(
    folder: CheckpointFolder, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _save_files(folder, 1, "of step 1")
    _save_files(folder, 2, "of step 2")
    file = folder.path / "step-2" / "inner" / "model.txt"
    if damage == "gone":
        file.unlink()
    else:
        file.write_text("of step 3" if damage == "other" else "of")
    assert folder.newest() == folder.path / "step-1"
    assert "step-2 is damaged" in capsys.readouterr().err


def test_files_and_states_do_not_disturb_each_other(folder: CheckpointFolder) -> None:
    folder.save({"epoch": 1}, step=1)
    _save_files(folder, 2, "of step 2")
    assert folder.load() == {"epoch": 1}
    assert folder.newest() == folder.path / "step-2"
    with pytest.raises(RuntimeError, match="Load them with the framework"):
        load_state(folder.path / "step-2")
