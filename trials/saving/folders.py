"""Checkpoints that are folders with any files: listed with checksums, renamed when complete."""

from __future__ import annotations

import errno
import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

from tuner.checkpoints import layout

_CHUNK_BYTES = 1 << 20
_N_RENAMES = 10


def write_list(folder: Path) -> None:
    """Writes the list of a folder's files; everything is on disk afterwards.

    Raises:
        OSError: If something cannot be written or read.
    """
    sums = {}
    for file in _files_in(folder):
        sums[file.relative_to(folder).as_posix()] = _checksum(file)
        _sync(file)
    target = folder / layout.FILES_NAME
    target.write_text(json.dumps(sums, indent=1))
    _sync(target)
    for parent, _, _ in os.walk(folder):
        layout.sync_folder(Path(parent))


def check(folder: Path) -> None:
    """Compares every file with the list.

    Raises:
        OSError: If a file cannot be read.
        RuntimeError: If a file is not as it was written.
    """
    for name, expected in json.loads((folder / layout.FILES_NAME).read_text()).items():
        if _checksum(folder / name) != expected:
            raise RuntimeError(f"{name} is not as it was written")


def rename(partial: Path, final: Path, replaced: Path) -> None:
    """Gives a complete folder its final name.

    Args:
        partial: The folder.
        final: Its name; an older folder of this name is removed.
        replaced: Temporary name of that one.

    Raises:
        OSError: If it cannot be renamed.
    """
    layout.sync_folder(partial)
    os.utime(partial)
    for n_left in reversed(range(_N_RENAMES)):
        try:
            # An older state of the same step; another attempt may put one there at any moment.
            if final.exists():
                final.rename(replaced)
            partial.rename(final)
            break
        except OSError as error:
            is_taken = error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT)
            if not n_left or not is_taken or not partial.exists():
                raise
            layout.remove(replaced)
    layout.sync_folder(final.parent)
    layout.remove(replaced)


def _files_in(folder: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(folder):
        for name in names:
            yield Path(parent) / name


def _checksum(file: Path) -> str:
    size, crc = 0, 0
    with file.open("rb") as content:
        while chunk := content.read(_CHUNK_BYTES):
            size, crc = size + len(chunk), zlib.crc32(chunk, crc)
    return f"{size} {crc:08x}"


def _sync(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
