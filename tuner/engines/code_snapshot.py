"""A snapshot of a study's code at the time of submission.

An allocation may start hours later. Tracked files, and untracked ones that git does not ignore, are
copied, once per content; ignored files, such as data, are linked.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tuner.checkpoints.paths import FOLDER_NAME
from tuner.errors import EngineError
from tuner.store.records.provenance import ENV_CODE, ENV_COMMIT, ENV_IS_DIRTY, git_state

#: Larger files are linked: they are data.
_MAX_COPY_BYTES = 16 * 1024**2
_MOST_FILES = 20_000
_GIT_TIMEOUT_S = 60.0
_NEVER = ("__pycache__", FOLDER_NAME, ".git")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A copy of a working tree."""

    #: Hash of paths and contents, 12 hexadecimal digits.
    sha: str
    #: The copy.
    folder: Path
    #: The working tree.
    root: Path
    commit: str | None
    is_dirty: bool | None

    def path_of(self, original: Path) -> Path:
        """The snapshot's path for a file or folder of the working tree; others are unchanged."""
        if not original.is_relative_to(self.root):
            return original
        return self.folder / original.relative_to(self.root)

    @property
    def environment(self) -> Mapping[str, str]:
        """Environment variables that identify the code."""
        dirty = {True: "1", False: "0", None: ""}[self.is_dirty]
        return {ENV_CODE: self.sha, ENV_COMMIT: self.commit or "", ENV_IS_DIRTY: dirty}


def take_snapshot(folder: Path, into: Path) -> Snapshot | None:
    """Copies the working tree of a folder, unless a copy of that content exists.

    Args:
        folder: In the working tree. Absolute.
        into: Folder of the copies, each in a folder named after its content.

    Returns:
        None if the folder is in no git repository.

    Raises:
        EngineError: If the tree is too large, or the copy cannot be written.
    """
    top = _git(folder, "rev-parse", "--show-toplevel")
    if top is None:
        return None
    root = Path(top.decode(errors="surrogateescape").rstrip("\n"))
    files = list(_listed(root, "--cached", "--others"))
    if len(files) > _MOST_FILES:
        raise EngineError(
            f"The code in {root} has {len(files)} files, but a snapshot takes at most "
            f"{_MOST_FILES}. Exclude data and results with .gitignore."
        )
    sha = _sha_of(root, files)
    target = into / sha
    try:
        if not target.is_dir():
            _write(root, files, target)
    except OSError as error:
        raise EngineError(f"The code cannot be copied to {target}: {error}.") from error
    git = git_state(folder)
    return Snapshot(sha=sha, folder=target, root=root, commit=git.commit, is_dirty=git.is_dirty)


def _listed(root: Path, *which: str) -> Iterator[Path]:
    """Paths in the working tree, without the results of the tuner."""
    found = _git(root, "ls-files", "-z", "--exclude-standard", *which) or b""
    for name in sorted(set(found.split(b"\0")) - {b""}):
        path = Path(os.fsdecode(name))
        if not set(path.parts) & set(_NEVER) and os.path.lexists(root / path):
            yield path


def _sha_of(root: Path, files: list[Path]) -> str:
    whole = hashlib.sha256()
    for path in files:
        whole.update(os.fsencode(path) + b"\0" + _content(root / path) + b"\0")
    return whole.hexdigest()[:12]


def _content(path: Path) -> bytes:
    """Bytes that identify a file's content."""
    if path.is_symlink():
        return b"link " + os.fsencode(os.readlink(path))
    about = path.stat()
    if path.is_dir() or about.st_size > _MAX_COPY_BYTES:
        return f"{about.st_size} {about.st_mtime_ns}".encode()
    is_program = bool(about.st_mode & 0o100)
    return hashlib.sha256(path.read_bytes()).digest() + bytes([is_program])


def _write(root: Path, files: list[Path], target: Path) -> None:
    """Writes the copy aside, so that it is whole once it has its name."""
    aside = target.with_name(f".{target.name}-{os.getpid()}")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    for path in files:
        _copy(root / path, aside / path)
    for path in _listed(root, "--others", "--ignored", "--directory"):
        if not os.path.lexists(aside / path) and path.suffix not in (".pyc", ".db"):
            (aside / path).parent.mkdir(parents=True, exist_ok=True)
            (aside / path).symlink_to(root / path)
    try:
        aside.rename(target)
    except OSError:
        shutil.rmtree(aside, ignore_errors=True)
        if not target.is_dir():  # Another submission was faster.
            raise


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    is_large = not source.is_symlink() and source.stat().st_size > _MAX_COPY_BYTES
    if is_large or (source.is_dir() and not source.is_symlink()):
        target.symlink_to(source)
    else:
        shutil.copy2(source, target, follow_symlinks=False)


def _git(folder: Path, *words: str) -> bytes | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words],
            capture_output=True,
            timeout=_GIT_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
