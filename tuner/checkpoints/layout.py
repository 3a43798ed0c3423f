"""The layout of checkpoints on disk, for readers without torch.

`step-<n>.pt` is a checkpoint of one process; `step-<n>/` is one of several ranks, or the files of a
framework with a list of them.
"""

from __future__ import annotations

import os
import re
import shutil
import zipfile
from pathlib import Path
from typing import IO

#: torch.distributed.checkpoint writes it last.
METADATA_NAME = ".metadata"
#: List of the files of a framework's checkpoint; written last.
FILES_NAME = ".files.json"
#: Next to the folder of checkpoints: identifies their trial.
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


def partial_of(final: Path, writer: str) -> Path:
    """Path of a checkpoint while it is being written.

    Args:
        final: Its final name.
        writer: Identifies the writer; starts with the number of the attempt.
    """
    return final.with_name(f"{final.name.removesuffix('.pt')}.partial-{writer}")


def replaced_of(final: Path, writer: str) -> Path:
    """Path of an older checkpoint of the same step while it is being replaced."""
    return final.with_name(f"{final.name}.replaced-{writer}")


def leftovers(folder: Path, attempt_number: int | None = None) -> list[Path]:
    """Files of processes that were killed while they saved.

    Args:
        folder: The checkpoints of a trial.
        attempt_number: The attempt whose processes are gone; None for all attempts, if none runs.
    """
    if attempt_number is None:
        return [*folder.glob("step-*.partial*"), *folder.glob("step-*.replaced*")]
    kinds = ("partial", "replaced")
    return [path for kind in kinds for path in folder.glob(f"step-*.{kind}-{attempt_number}-*")]


def remove(path: Path) -> None:
    """Removes a checkpoint, or its remains; it may be gone already."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def all_whole(folder: Path) -> list[Path]:
    """Checkpoints that are not cut off, the newest first."""
    return [path for path in newest_first(folder) if is_whole(path)]


def newest_whole(folder: Path) -> Path | None:
    """The newest checkpoint that is not cut off; whether its content is right shows in loading."""
    return next((path for path in newest_first(folder) if is_whole(path)), None)


def is_whole(path: Path) -> bool:
    """Whether a checkpoint has its end, which is written last."""
    if path.is_dir():
        return (path / METADATA_NAME).is_file() or is_of_framework(path)
    try:
        return zipfile.is_zipfile(path)
    except OSError:
        return False


def last_written(path: Path) -> Path:
    """The last written file of a checkpoint, which shows that it is whole."""
    if not path.is_dir():
        return path
    return path / (FILES_NAME if is_of_framework(path) else METADATA_NAME)


def is_of_framework(path: Path) -> bool:
    """Whether a checkpoint is a folder with the files of a framework, and complete."""
    return (path / FILES_NAME).is_file()


def damage_of(file: Path | IO[bytes]) -> str:
    """Why a file of torch.save must not be loaded; empty if each byte of it is right.

    torch does not compare the checksums (CRC-32) that it writes.

    Args:
        file: The file, or one that is open for reading.

    Raises:
        OSError: If it cannot be read.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            # A program may have disabled torch's checksums.
            has_checksums = any(member.CRC for member in archive.infolist())
            damaged = archive.testzip() if has_checksums else None
    except (OSError, MemoryError):
        raise
    except Exception as error:  # Damage at any place; zipfile raises a dozen kinds.
        return str(error) or type(error).__name__
    return f"{damaged} is not as it was written" if damaged else ""


def sync_folder(folder: Path) -> None:
    """Puts names on the disk: a rename is lost in a power cut without it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_identity(folder: Path) -> None:
    """Syncs the folder's identity file to the disk, if there is one."""
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
