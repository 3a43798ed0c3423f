"""The code of a study as it was at submission: what is copied, linked and left out."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tuner.engines.code_snapshot import take_snapshot


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with a tracked, an untracked and an ignored file, and results of the tuner."""
    root = tmp_path / "work"
    for name in ("model.py", "nested/net.py", "data/set.bin", "tuner-files/s/x.log", "a.pyc"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    (root / ".gitignore").write_text("data/\n*.pyc\n")
    (root / "link.py").symlink_to("model.py")
    for words in (["init", "-q"], ["add", "model.py"]):
        subprocess.run(["git", "-C", str(root), *words], check=True)
    return root


def names(folder: Path) -> set[str]:
    files = (path for path in folder.rglob("*") if path.is_symlink() or path.is_file())
    return {path.relative_to(folder).as_posix() for path in files}


def test_tracked_and_untracked_files_are_copied_and_ignored_ones_linked(
    tree: Path, tmp_path: Path
) -> None:
    snapshot = take_snapshot(tree / "nested", tmp_path / "code")
    assert snapshot is not None
    assert names(snapshot.folder) == {
        ".gitignore",
        "data",
        "link.py",
        "model.py",
        "nested/net.py",
    }
    (tree / "model.py").write_text("changed since")
    assert (snapshot.folder / "model.py").read_text() == "model.py"
    assert (snapshot.folder / "link.py").read_text() == "model.py"
    assert (snapshot.folder / "data" / "set.bin").read_text() == "data/set.bin"
    assert snapshot.path_of(tree / "nested" / "net.py") == snapshot.folder / "nested" / "net.py"
    assert snapshot.path_of(tmp_path) == tmp_path


def test_the_same_content_is_copied_once_and_another_one_anew(tree: Path, tmp_path: Path) -> None:
    first = take_snapshot(tree, tmp_path / "code")
    (tree / "tuner-files" / "s" / "x.log").write_text("more results")
    again = take_snapshot(tree, tmp_path / "code")
    (tree / "nested" / "net.py").write_text("other")
    other = take_snapshot(tree, tmp_path / "code")
    assert first is not None
    assert again is not None
    assert other is not None
    assert first.sha == again.sha != other.sha
    assert {path.name for path in (tmp_path / "code").iterdir()} == {first.sha, other.sha}


def test_a_folder_without_a_repository_has_no_snapshot(tmp_path: Path) -> None:
    assert take_snapshot(tmp_path, tmp_path / "code") is None
    assert not (tmp_path / "code").exists()
