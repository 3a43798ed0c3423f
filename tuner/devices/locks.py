"""Keeps two tuners on one host, of any users, from taking the same GPU.

Both may see a GPU free at the same time, or between two trials of the other. An advisory lock
(flock) on a file per GPU decides. The kernel releases it when its process ends in any way, so there
are no stale locks.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from tuner.devices.device import Device, DeviceId, DeviceKind
from tuner.errors import DeviceError
from tuner.host.process_identity import pid_namespace

#: Retries if others remove the file each time between opening and locking.
_MAX_TRIES = 10
#: A lock holds a pid and its namespace.
_MAX_BYTES = 256
_OPEN_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


_LET_ALL_WRITE = "Let every user of this machine read and write that file."
_REMOVE = "Remove it."
_WAY_OUT = dict.fromkeys((errno.EINVAL, errno.EMLINK, errno.EFBIG, errno.ELOOP), _REMOVE)


def default_lock_folder() -> Path:
    """One folder for all users of a host, unless TMPDIR differs."""
    return Path(tempfile.gettempdir()) / "tuner-devices"


class DeviceLocks:
    """The GPUs and MIG slices that this process has claimed.

    Args:
        folder: Folder of the lock files, created if missing.
        locks_cpu: Whether CPU slots are locked, too: they belong to one study unless a machine
            divides them among its users.

    Raises:
        DeviceError: If the folder cannot be used. Also raised by `acquire`.
    """

    def __init__(self, folder: Path | None = None, *, locks_cpu: bool = False) -> None:
        self._folder = default_lock_folder() if folder is None else folder
        self._locks_cpu = locks_cpu
        self._held: dict[DeviceId, int] = {}
        #: By share: the lock on its GPU.
        self._gpus: dict[DeviceId, int] = {}

    def acquire(self, device: Device) -> bool:
        """Claims a device; False if another tuner has it, True also if this one already does."""
        if self.has(device):
            return True
        try:
            lock = self._lock(device)
        except OSError as error:
            raise DeviceError(
                f"{device.label} cannot be claimed: {self._folder / _file_name(device.id)}: "
                f"{error.strerror}. {_WAY_OUT.get(error.errno or 0, _LET_ALL_WRITE)}"
            ) from error
        if lock is not None:
            self._held[device.id] = lock
        return lock is not None

    def _lock(self, device: Device) -> int | None:
        """Locks a device; for a share of a GPU, also a shared lock on the GPU."""
        if device.share_of is None:
            return _lock(self._folder, _file_name(device.id))
        gpu = _lock(self._folder, _file_name(device.share_of), fcntl.LOCK_SH)
        if gpu is None:
            return None
        share = _lock(self._folder, _file_name(device.id))
        if share is None:
            os.close(gpu)
        else:
            self._gpus[device.id] = gpu
        return share

    def has(self, device: Device) -> bool:
        """Whether this process has claimed a device, or needs no claim on it."""
        return device.id in self._held or (device.kind is DeviceKind.CPU and not self._locks_cpu)

    def owner_pid(self, device: Device) -> int | None:
        """The live process that last claimed a device, including this one; None if there is none.

        For messages only: it takes no lock, so it disturbs no other tuner, and may be outdated.
        """
        try:
            pid, namespace = (self._folder / _file_name(device.id)).read_bytes().split()
            is_ours = namespace == pid_namespace().encode()
            return int(pid) if is_ours and int(pid) > 0 and psutil.pid_exists(int(pid)) else None
        except (OSError, ValueError, OverflowError):
            return None

    def locked_by(self, device: Device) -> int | None:
        """The process that holds a device's lock according to the kernel; None if there is none."""
        return lock_holders(self._folder, [device.id]).get(device.id)

    def release(self, device: Device) -> None:
        """Releases one claim; does nothing if there is none."""
        lock = self._held.pop(device.id, None)
        if lock is not None:
            _unlock(lock)
        if (gpu := self._gpus.pop(device.id, None)) is not None:
            os.close(gpu)

    def close(self) -> None:
        """Releases all claims. Safe to call twice."""
        while self._held:
            _, lock = self._held.popitem()
            _unlock(lock)
        while self._gpus:
            os.close(self._gpus.popitem()[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def lock_holders(folder: Path, device_ids: Iterable[DeviceId]) -> dict[DeviceId, int]:
    """The processes that have locked devices, according to the kernel.

    Devices without a lock are left out, and those locked from another PID namespace.
    """
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return {}
    # It is 0 where the process is in another namespace.
    holders = {
        words[5]: int(words[4])
        for line in lines
        if len(words := line.split()) > 5 and words[1] != "->"
    }
    found: dict[DeviceId, int] = {}
    for device_id in device_ids:
        with suppress(OSError):
            file = os.stat(folder / _file_name(device_id), follow_symlinks=False)
            device = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}"
            pid = holders.get(f"{device}:{file.st_ino}", 0)
            if pid > 0:
                found[device_id] = pid
    return found


def _file_name(device_id: DeviceId) -> str:
    # UUIDs of MIG slices under drivers before 470 have slashes: MIG-GPU-<uuid>/1/0.
    return device_id.replace("/", "_")


def _lock(folder: Path, name: str, kind: int = fcntl.LOCK_EX) -> int | None:
    """Opens and locks a file; None if another process has it.

    Args:
        folder: Its folder.
        name: Its name.
        kind: `LOCK_EX`, or `LOCK_SH` for a shared lock.
    """
    for _ in range(_MAX_TRIES):
        lock = _open(folder, name)
        try:
            fcntl.flock(lock, kind | fcntl.LOCK_NB)
            is_removed = _refuse_foreign(lock)
        except BlockingIOError:
            os.close(lock)
            return None
        except OSError:
            os.close(lock)
            raise
        if not is_removed:
            if kind == fcntl.LOCK_EX:
                _sign(lock)
            return lock
        os.close(lock)  # The next one to come would lock another file of this name.
    return None


def _refuse_foreign(lock: int) -> bool:
    """Refuses a file that no tuner made; returns whether the file was removed meanwhile.

    The folder is open to all users, and any may have created a file of this name: its owner means
    nothing. But a hard link would let this process overwrite a file of its own user.

    Raises:
        OSError: If no tuner made this file.
    """
    found = os.fstat(lock)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "this is not a regular file, so no tuner made it")
    if found.st_nlink > 1:
        raise OSError(errno.EMLINK, "this is a hard link to another file, so no tuner made it")
    if found.st_size > _MAX_BYTES:
        raise OSError(errno.EFBIG, "this holds more than a lock does, so no tuner made it")
    return found.st_nlink == 0


def _unlock(lock: int) -> None:
    with suppress(OSError):
        os.ftruncate(lock, 0)
    os.close(lock)


def _sign(lock: int) -> None:
    """Writes our pid for the other's message. The lock is good without it (on a full disk).

    A pid means another process in another PID namespace, so the namespace is written with it.
    """
    with suppress(OSError):
        os.ftruncate(lock, 0)
        os.pwrite(lock, b"%d %s" % (os.getpid(), pid_namespace().encode()), 0)


def _open(folder: Path, name: str) -> int:
    """Opens a lock file that any user may have created.

    The folder is opened first and the file within it, so that no link can be put in between. A file
    of another user in a sticky folder may be opened, but not with O_CREAT (Linux,
    fs.protected_regular), so it is created in a separate step.
    """
    make_lock_folder(folder)
    folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        with suppress(FileExistsError):
            return _create(name, folder_fd)
        return os.open(name, _OPEN_FLAGS, dir_fd=folder_fd)
    finally:
        os.close(folder_fd)


def _create(name: str, folder_fd: int) -> int:
    lock = os.open(name, _OPEN_FLAGS | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=folder_fd)
    # Whatever the umask took away: other users have to open it too.
    os.fchmod(lock, 0o666)
    return lock


def make_lock_folder(folder: Path) -> None:
    """Creates the folder that all users of a host share, if it is missing."""
    with suppress(FileExistsError):
        folder.mkdir()
        folder.chmod(0o1777)
