"""Checks that SQLite is safe on a file's file system: not if several machines share it.

In WAL mode the programs share an index of the log in memory. Machines do not share memory, so two
of them corrupt the file (https://sqlite.org/wal.html, "WAL does not work over a network
filesystem"); the locks of the other modes are not reliable there either
(https://sqlite.org/howtocorrupt.html, 2.1).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn
from urllib.parse import unquote

from sqlalchemy import URL

from tuner.errors import StoreError

_MOUNTS = Path("/proc/self/mountinfo")
_OCTAL = re.compile(r"\\([0-7]{3})")
#: Names of the kernel's file systems, and of those in user space behind `fuse.`.
_SHARED = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "9p"),
        *("ceph", "lustre", "gpfs", "beegfs", "pvfs2", "panfs", "wekafs", "gfs2", "ocfs2"),
        *("glusterfs", "ceph-fuse", "sshfs", "rclone", "s3fs", "gcsfuse", "juicefs"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """Mount point and type of a file system."""

    point: str
    kind: str

    @property
    def is_shared(self) -> bool:
        """Whether other machines can have it too."""
        # The root of a sandbox (gVisor, Kata) is 9p between it and its host only.
        if self.kind == "9p" and self.point == "/":
            return False
        return self.kind.removeprefix("fuse.").lower() in _SHARED


def path_of(url: URL) -> Path | None:
    """The file of an SQLite database; None for other databases."""
    name = url.database if url.get_backend_name() == "sqlite" else None
    if not name or name == ":memory:" or "mode=memory" in name:
        return None
    if name.startswith("file:"):
        name = unquote(name.removeprefix("file:").partition("?")[0])
    return Path(name).absolute()


def check_is_local(path: Path) -> None:
    """Checks a file's file system.

    Raises:
        StoreError: If the file is, or would be, on a file system that machines share.
    """
    folder = path.resolve().parent
    # An automounter mounts what is looked at.
    if not folder.exists() or not _MOUNTS.exists():
        return
    mount = mount_of(str(folder), _MOUNTS.read_text(errors="surrogateescape"))
    if mount is not None and mount.is_shared:
        refuse_shared(path, mount)


def refuse_shared(path: Path, mount: Mount) -> NoReturn:
    raise StoreError(
        f"The SQLite database {path} is on a network file system ({mount.kind}, mounted at "
        f"{mount.point}), where SQLite loses data. Name a file on a local disk in storage, or a "
        "database server: postgresql://user:${DB_PASSWORD}@host/name."
    )


def mount_of(path: str, mountinfo: str) -> Mount | None:
    """The mount that contains a path.

    Args:
        path: An absolute path without links.
        mountinfo: Text of `/proc/self/mountinfo` (proc_pid_mountinfo(5)).
    """
    # Of two at one point the later one covers the earlier.
    around = [mount for mount in _mounts(mountinfo) if _is_below(path, mount.point)]
    return max(reversed(around), key=lambda mount: len(mount.point), default=None)


def _mounts(mountinfo: str) -> Iterator[Mount]:
    for line in mountinfo.splitlines():
        place, separator, source = line.partition(" - ")
        fields = place.split(" ")
        if separator and len(fields) > 4:
            point = _OCTAL.sub(lambda octal: chr(int(octal[1], 8)), fields[4])
            yield Mount(point=point, kind=source.split(" ")[0])


def _is_below(path: str, point: str) -> bool:
    return os.path.commonpath([path, point]) == point
