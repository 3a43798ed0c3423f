"""How checkpoints lie on disk, for those who look for them without torch.

`step-<n>.pt` is a state that one process wrote, `step-<n>/` one that several ranks wrote together.
"""

from __future__ import annotations

import os
import re
import zipfile
from pathlib import Path

#: torch.distributed.checkpoint writes it last.
METADATA_NAME = ".metadata"
#: Beside the folder of checkpoints: says which trial they belong to.
IDENTITY_NAME = "trial.json"
_NAME = re.compile(r"step--?\d+(\.pt)?")


def file_of(folder: Path, step: int) -> Path:
    return folder / f"step-{step}.pt"


def sharded_of(folder: Path, step: int) -> Path:
    return folder / f"step-{step}"


def step_of(path: Path) -> int:
    """The step in the name of a checkpoint."""
    return int(path.name.removeprefix("step-").removesuffix(".pt"))


def newest_first(folder: Path) -> list[Path]:
    """Checkpoints under their final names. Others' files in the folder are not among them."""
    try:
        found = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    # By time and not by step: a trial that starts over saves smaller steps again.
    return sorted(found, key=_written_at_ns, reverse=True)


def leftovers(folder: Path) -> list[Path]:
    """What a process left that was killed while it saved."""
    return [*folder.glob("step-*.partial*"), *folder.glob("step-*.replaced")]


def newest_whole(folder: Path) -> Path | None:
    """The newest checkpoint that is not cut off; whether its content is right shows in loading."""
    return next((path for path in newest_first(folder) if is_whole(path)), None)


def is_whole(path: Path) -> bool:
    """Whether a checkpoint has its end, which is written last."""
    if path.is_dir():
        return (path / METADATA_NAME).is_file()
    try:
        return zipfile.is_zipfile(path)
    except OSError:
        return False


def sync_folder(folder: Path) -> None:
    """Puts names on the disk: a rename is lost in a power cut without it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_identity(folder: Path) -> None:
    """Puts the file on the disk that says whose checkpoints the folder holds, if there is one."""
    identity = folder.parent / IDENTITY_NAME
    if not identity.is_file():
        return
    descriptor = os.open(identity, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    sync_folder(folder.parent)


def _written_at_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0  # Rank 0 has just removed it.
