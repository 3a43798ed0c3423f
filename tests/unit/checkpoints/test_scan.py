"""What is seen of checkpoints on disk, and what has changed since."""

from __future__ import annotations

import os
import zipfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from tuner.checkpoints.layout import METADATA_NAME
from tuner.checkpoints.scan import SavedState, changes, look

STATE = SavedState(
    path="/c/step-1.pt", step=1, size_bytes=5, saved_at=datetime(2026, 1, 1, tzinfo=UTC)
)


def save(folder: Path, step: int, at_s: float = 1000.0) -> Path:
    """What torch.save writes is a zip file."""
    folder.mkdir(exist_ok=True)
    path = folder / f"step-{step}.pt"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("data", b"x" * step)
    os.utime(path, (at_s, at_s))
    return path


def test_whole_states_are_seen(tmp_path: Path) -> None:
    path = save(tmp_path, 12, at_s=1000.25)
    (state,) = look(tmp_path).values()
    assert state == SavedState(
        path=str(path),
        step=12,
        size_bytes=path.stat().st_size,
        saved_at=datetime(1970, 1, 1, 0, 16, 40, 250_000, tzinfo=UTC),
    )


def test_torn_ones_and_other_files_are_not(tmp_path: Path) -> None:
    (tmp_path / "step-1.pt").write_bytes(b"torn")
    (tmp_path / "step-2.partial-77").write_bytes(b"")
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "step-3").mkdir()
    assert look(tmp_path) == {}
    assert look(tmp_path / "missing") == {}


def test_folder_of_several_ranks_is_one_state(tmp_path: Path) -> None:
    folder = tmp_path / "step--1"
    folder.mkdir()
    (folder / "__0_0.distcp").write_bytes(b"1234")
    (folder / METADATA_NAME).write_bytes(b"56")
    (state,) = look(tmp_path).values()
    assert (state.step, state.size_bytes) == (-1, 6)


def test_changes_are_what_is_new_or_written_anew_and_what_is_gone() -> None:
    same = replace(STATE, path="/c/step-0.pt", step=0)
    anew = replace(STATE, size_bytes=6)
    first = replace(STATE, path="/c/step-2.pt", step=2, saved_at=datetime(2025, 1, 1, tzinfo=UTC))
    gone = replace(STATE, path="/c/step-9.pt", step=9)
    before = {each.path: each for each in (same, STATE, gone)}
    after = {each.path: each for each in (anew, same, first)}
    assert changes(before, after) == ([first, anew], [gone.path])
    assert changes(after, after) == ([], [])
