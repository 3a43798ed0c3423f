"""Whether the path of an SQLite database still names the file that is open.

A program that deletes a file and makes another one leaves readers of the old one undisturbed: they
would show it for ever.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class FileIdentity:
    """One file of a file system; a new file with the same name has another identity."""

    device: int
    inode: int


def identity_of(path: Path) -> FileIdentity | None:
    """The identity of the file at a path; None if there is none, or it can't be reached."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return FileIdentity(device=found.st_dev, inode=found.st_ino)


def log_of(path: Path) -> Path:
    """The write-ahead log next to a database file."""
    return path.with_name(f"{path.name}-wal")
