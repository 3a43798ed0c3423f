"""Moves checkpoints between a disk and a bucket: whole ones only, each under its own name."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Protocol

from tuner.checkpoints import layout
from tuner.checkpoints.object_store.keys import MANIFEST, is_folder, local_name

_WRITER = "0-download"


class Objects(Protocol):
    """The required interface of a bucket."""

    def size_of(self, key: str) -> int | None: ...

    def put(self, key: str, content: IO[bytes] | bytes) -> None: ...

    def get(self, key: str) -> Iterator[bytes]: ...

    def keys(self, prefix: str) -> list[str]: ...

    def delete(self, keys: list[str]) -> None: ...


class Gone(Exception):
    """The file to upload was removed or replaced."""


def upload(bucket: Objects, source: Path, key: str, links: Path, written_at_ns: int = 0) -> str:
    """Uploads a checkpoint or a log.

    Args:
        bucket: The bucket.
        source: A file, or a folder.
        key: Its key.
        links: A folder on the disk of `source`, in which it is held while it is uploaded.
        written_at_ns: Its expected modification time; 0 for any.

    Returns:
        The key of the object that shows that the upload is complete.

    Raises:
        Gone: If it no longer exists, or was replaced.
        BucketError: If the bucket refuses it.
    """
    try:
        with _held(source, links) as held:
            if written_at_ns and held.stat().st_mtime_ns != written_at_ns:
                raise Gone
            if held.is_dir():
                return _upload_folder(bucket, held, key)
            _upload_file(bucket, held, key)
            return key
    except FileNotFoundError:
        raise Gone from None


def _upload_file(bucket: Objects, path: Path, key: str) -> None:
    with path.open("rb") as content:
        size_bytes = os.fstat(content.fileno()).st_size
        # A dispatcher that was killed may have uploaded it, and not recorded that.
        if bucket.size_of(key) != size_bytes:
            bucket.put(key, content)


def _upload_folder(bucket: Objects, folder: Path, key: str) -> str:
    manifest = f"{key}/{MANIFEST}"
    sizes = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder).as_posix()
        _upload_file(bucket, path, f"{key}/{name}")
        sizes[name] = path.stat().st_size
    if not layout.is_whole(folder):
        raise Gone
    bucket.put(manifest, json.dumps(sizes, indent=1).encode())
    return manifest


def download(bucket: Objects, key: str, folder: Path, size_bytes: int = 0) -> Path:
    """Downloads a checkpoint into the checkpoints of a trial.

    Args:
        bucket: The bucket.
        key: As `upload` returned it.
        folder: The checkpoints of the trial.
        size_bytes: Size of a checkpoint file; 0 if unknown.

    Returns:
        Its path; it has its original modification time.

    Raises:
        BucketError: If the bucket refuses.
        OSError: If it cannot be written, or is incomplete.
    """
    name, written_at_ns = local_name(key)
    final = folder / name
    if layout.is_whole(final) and final.stat().st_mtime_ns == written_at_ns:
        return final
    folder.mkdir(parents=True, exist_ok=True)
    partial = layout.partial_of(final, f"{_WRITER}-{os.getpid()}")
    layout.remove(partial)
    try:
        if is_folder(key):
            _download_folder(bucket, key, partial)
        else:
            _download_file(bucket, key, partial, size_bytes)
        if not layout.is_whole(partial):
            raise OSError(f"{key} is not a whole checkpoint")
        os.utime(partial, ns=(written_at_ns, written_at_ns))
        if final.is_dir() or partial.is_dir():
            layout.remove(final)
        partial.rename(final)
    finally:
        layout.remove(partial)
    layout.sync_folder(folder)
    return final


def read_text(bucket: Objects, key: str) -> bytes:
    """A small object, such as a log."""
    return b"".join(bucket.get(key))


def delete(bucket: Objects, key: str) -> None:
    """Removes the objects of a checkpoint or log; missing ones are no error."""
    if not is_folder(key):
        bucket.delete([key])
        return
    # First the object that marks the upload as complete.
    bucket.delete([key])
    bucket.delete(bucket.keys(key.removesuffix(f"/{MANIFEST}")))


def _download_folder(bucket: Objects, key: str, target: Path) -> None:
    target.mkdir()
    below = key.removesuffix(MANIFEST)
    for name, size_bytes in json.loads(read_text(bucket, key)).items():
        place = PurePosixPath(name)
        if place.is_absolute() or ".." in place.parts:
            raise OSError(f"{key} names a file outside of its folder")
        path = target / place
        path.parent.mkdir(parents=True, exist_ok=True)
        _download_file(bucket, f"{below}{name}", path, int(size_bytes))


def _download_file(bucket: Objects, key: str, path: Path, size_bytes: int) -> None:
    with path.open("wb") as file:
        for piece in bucket.get(key):
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
        if size_bytes and file.tell() != size_bytes:
            raise OSError(f"{key} has {file.tell()} bytes of {size_bytes}")


@contextmanager
def _held(source: Path, links: Path) -> Iterator[Path]:
    """A hard link, so that the trial may remove its own file; the original if links do not work."""
    links.mkdir(parents=True, exist_ok=True)
    held = links / f"{source.parent.parent.name}-{source.name}"
    layout.remove(held)
    try:
        _link(source, held)
    except FileNotFoundError:
        layout.remove(held)
        raise
    except OSError:
        layout.remove(held)
        yield source
        return
    try:
        yield held
    finally:
        layout.remove(held)


def _link(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, copy_function=os.link)
        shutil.copystat(source, target)
    else:
        os.link(source, target)
