"""Scans the checkpoints of trials on disk, outside the loop, and reports changes.

The disk is the truth: files that a program writes itself, or that a user removes, are seen too. The
results are stored in the database, for readers on other machines.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from tuner.checkpoints import layout


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedState:
    """One checkpoint on disk, whole according to its last file."""

    path: str
    step: int
    size_bytes: int
    saved_at: datetime
    #: The same, as the disk has it.
    written_at_ns: int = field(default=0, compare=False)
    #: Inode of the file, or of a folder's last file: names of one file share it.
    inode: int = field(default=0, compare=False)


def look(folder: Path) -> dict[str, SavedState]:
    """The checkpoints of one trial, by path."""
    found = (look_at(path) for path in layout.newest_first(folder))
    return {state.path: state for state in found if state is not None}


def changes(
    before: Mapping[str, SavedState], after: Mapping[str, SavedState]
) -> tuple[list[SavedState], list[str]]:
    """New and rewritten checkpoints, the oldest first; and removed paths."""
    added = [state for path, state in after.items() if before.get(path) != state]
    gone = [path for path in before if path not in after]
    return sorted(added, key=lambda state: state.saved_at), gone


def look_at(path: Path) -> SavedState | None:
    """One checkpoint; None if it is incomplete, or was removed meanwhile."""
    if not layout.is_whole(path):
        return None
    try:
        stat = path.stat()
        size_bytes = sum(_sizes(path))
        inode = layout.last_written(path).stat().st_ino
    except FileNotFoundError:
        return None
    return SavedState(
        path=str(path),
        step=layout.step_of(path),
        size_bytes=size_bytes,
        saved_at=datetime.fromtimestamp(stat.st_mtime, UTC),
        written_at_ns=stat.st_mtime_ns,
        inode=inode,
    )


def _sizes(path: Path) -> Iterator[int]:
    if path.is_file():
        yield path.stat().st_size
        return
    for parent, _, names in os.walk(path):
        for name in names:
            yield (Path(parent) / name).stat().st_size
