"""Claims of devices by a machine's tuners, in a folder that all users can write.

A claim is a file that its tuner keeps locked while it lives. The kernel releases the lock: a file
without a lock belongs to a dead process. The file's owner, which only the kernel sets, identifies
the user. A claim contains numbers and device names, and nothing about a study.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import secrets
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tuner.devices.allocation.width import WHOLE
from tuner.devices.device import DeviceId
from tuner.devices.locks import make_lock_folder
from tuner.errors import DeviceError
from tuner.host.process_identity import pid_namespace

PREFIX = "claim-"
_MAX_BYTES = 256 * 1024
#: Maximum number and size in bytes of a user's claim files that are read: a flood of files must not
#: stop other users' tuners.
_MOST_OF_A_USER = 64
_MOST_BYTES_OF_A_USER = 1024 * 1024
_MOST_WARNINGS = 20
_MOST_DEVICES = 4096
_MAX_TRIES = 5
#: Owner id shown for a file whose owner has no id in a user namespace (user_namespaces(7)).
_OVERFLOW_UID = 65534
_ALL_UIDS = ["0", "0", "4294967295"]
_UNMAPPED = (
    "Users of this machine without a user id in this container count as one user without a "
    "guarantee. For exact shares start the container with the user ids of the machine."
)
_DEVICE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9:/#._-]{0,127}")
_OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The devices that one tuner holds and requests."""

    #: Name of its file.
    name: str = ""
    uid: int = -1
    pid: int
    #: Inode of the namespace in which the pid counts.
    pid_namespace: str
    priority: int
    #: Seconds UTC.
    since_s: float
    wants: int
    #: When it started to need more devices than it has, in seconds UTC.
    waits_since_s: float = 0.0
    unit: int
    #: Devices that it could use, with their size in parts.
    suits: Mapping[DeviceId, int]
    #: Devices that it has, with when it got each, in seconds UTC.
    holds: Mapping[DeviceId, float] = field(default_factory=dict)
    #: Devices among these that it returns as soon as their trials have saved.
    leaving: frozenset[DeviceId] = frozenset()
    #: Which rules it follows: equal rules have equal digests.
    rules: str = ""


class OwnClaim:
    """The claim file of this process.

    Args:
        folder: Folder of this machine's claims, created if missing.

    Raises:
        DeviceError: If the folder cannot be used. Also raised by `write`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.name = f"{PREFIX}{os.getuid()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._lock: int | None = None
        self._content = b""
        _check_folder(folder)

    def write(self, claim: Claim) -> None:
        """Replaces the claim atomically.

        An unchanged claim is not written again, so that the folder changes only with a claim.
        """
        content = _to_json(claim).encode()
        if content == self._content and self._is_there():
            return
        try:
            lock = self._replace(content)
        except OSError as error:
            raise DeviceError(
                f"{self._folder / self.name} cannot be written: {error.strerror}. "
                "Let every user of this machine write that folder, or make room on its disk."
            ) from error
        if self._lock is not None:
            os.close(self._lock)
        self._lock, self._content = lock, content

    def _is_there(self) -> bool:
        """Whether the file still has its name: programs that clean up remove old files."""
        return self._lock is not None and os.fstat(self._lock).st_nlink > 0

    def _replace(self, content: bytes) -> int:
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        new = f".{self.name}"
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            lock = os.open(new, flags, 0o644, dir_fd=folder)
            try:
                os.fchmod(lock, 0o644)
                # Before it gets its name, so that no process ever sees it without a lock.
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.write(lock, content)
                os.rename(new, self.name, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                os.close(lock)
                with suppress(OSError):
                    os.unlink(new, dir_fd=folder)
                raise
            return lock
        finally:
            os.close(folder)

    def close(self) -> None:
        """Removes the claim. Safe to call twice."""
        if self._lock is not None:
            with suppress(OSError):
                (self._folder / self.name).unlink()
            os.close(self._lock)
            self._lock = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimsRead:
    """The claims of a machine's live tuners, by name, and warnings about other files."""

    claims: tuple[Claim, ...]
    #: One sentence for each file that is named like a claim but is invalid.
    warnings: tuple[str, ...] = ()


def read_claims(folder: Path) -> ClaimsRead:
    """Reads all claims. Invalid files are skipped with a warning."""
    try:
        folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return ClaimsRead(claims=())
    claims: list[Claim] = []
    warnings: list[str] = []
    limits = _Limits()
    try:
        for name in _names(folder_fd):
            try:
                claim = _read(folder_fd, name, limits)
            except (OSError, ValueError) as error:
                reason = error.strerror if isinstance(error, OSError) else str(error)
                warnings.append(f"{folder / name} is no claim of a tuner: {reason}.")
                continue
            if claim is not None:
                claims.append(claim)
                if _is_unmapped(claim.uid):
                    warnings.append(_UNMAPPED)
    finally:
        os.close(folder_fd)
    if len(warnings) > _MOST_WARNINGS:
        warnings[_MOST_WARNINGS:] = [f"{folder} has further files that are no claims."]
    return ClaimsRead(claims=tuple(claims), warnings=(*warnings, *limits.warnings()))


class _Limits:
    """Limits on the files of one user."""

    def __init__(self) -> None:
        self._n_files: Counter[int] = Counter()
        self._n_bytes: Counter[int] = Counter()

    def allows(self, found: os.stat_result) -> bool:
        """Whether one more file of its owner may be read."""
        self._n_files[found.st_uid] += 1
        self._n_bytes[found.st_uid] += min(found.st_size, _MAX_BYTES)
        return not self._is_over(found.st_uid)

    def _is_over(self, uid: int) -> bool:
        return self._n_files[uid] > _MOST_OF_A_USER or self._n_bytes[uid] > _MOST_BYTES_OF_A_USER

    def warnings(self) -> Iterator[str]:
        for uid in filter(self._is_over, self._n_files):
            yield (
                f"User id {uid} has more claims than tuners have ({_MOST_OF_A_USER}, "
                f"{_MOST_BYTES_OF_A_USER // 1024} KiB): further ones are not looked at."
            )


def _names(folder_fd: int) -> list[str]:
    return sorted(name for name in os.listdir(folder_fd) if name.startswith(PREFIX))


def _read(folder_fd: int, name: str, limits: _Limits) -> Claim | None:
    """The claim in a file; None if its tuner is dead, or its user has too many.

    Raises:
        OSError: If it cannot be opened, for example because it is a link.
        ValueError: If it is no claim.
    """
    for _ in range(_MAX_TRIES):
        try:
            file = os.open(name, _OPEN_FLAGS, dir_fd=folder_fd)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise ValueError("it is a symbolic link") from error
            raise
        try:
            found = os.fstat(file)
            _check(found, name)
            if not _is_dead(file):
                if not limits.allows(found):
                    return None
                return _parse(os.read(file, _MAX_BYTES + 1), name, found.st_uid)
        finally:
            os.close(file)
        if not _was_replaced(folder_fd, name, found):
            _remove_own(folder_fd, name, found)
            return None
    return None


def _check(found: os.stat_result, name: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise ValueError("it is not a regular file")
    if found.st_nlink > 1:
        raise ValueError("it is a hard link to another file")
    if found.st_size > _MAX_BYTES:
        raise ValueError("it is larger than a claim")
    if not name.startswith(f"{PREFIX}{found.st_uid}-") and not _is_unmapped(found.st_uid):
        raise ValueError(
            f"its name is not one for its owner, user id {found.st_uid}. A tuner in a container "
            "with user ids of its own has no part in the shares of others, only in their locks"
        )


def _is_unmapped(uid: int) -> bool:
    """Whether an id represents all users of the machine without an id in this container."""
    if uid != _OVERFLOW_UID:
        return False
    with suppress(OSError):
        return Path("/proc/self/uid_map").read_text().split() != _ALL_UIDS
    return False


def _is_dead(file: int) -> bool:
    """Whether its tuner is dead: a live one has an exclusive lock. A shared lock does not count."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _was_replaced(folder_fd: int, name: str, found: os.stat_result) -> bool:
    with suppress(FileNotFoundError):
        return os.stat(name, dir_fd=folder_fd, follow_symlinks=False).st_ino != found.st_ino
    return False


def _remove_own(folder_fd: int, name: str, found: os.stat_result) -> None:
    """Removes the claim of a killed tuner of this user; others remove their own."""
    if found.st_uid == os.getuid():
        with suppress(OSError):
            os.unlink(name, dir_fd=folder_fd)


def _parse(content: bytes, name: str, uid: int) -> Claim:
    try:
        values = json.loads(content)
        claim = _from_json(values, name, uid)
    except (KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise ValueError("it cannot be read as one") from error
    except ValueError as error:
        raise ValueError(f"it cannot be read as one ({error})") from error
    if not _is_of_its_owner(claim):
        raise ValueError(f"its process {claim.pid} is not one of user id {uid}")
    return claim


def _is_of_its_owner(claim: Claim) -> bool:
    """Whether the process that a claim names is its user's, as far as that can be seen.

    Another user may keep the file of a dead tuner locked; its process is gone then.
    """
    if claim.pid_namespace != pid_namespace() or not Path("/proc/self").exists():
        return True
    try:
        # A process that may not be dumped is root's.
        return os.stat(f"/proc/{claim.pid}").st_uid in (claim.uid, 0)
    except FileNotFoundError:
        return _hides_processes()
    except OSError:
        return True


def _hides_processes() -> bool:
    """Whether /proc shows a user's own processes only (hidepid)."""
    return not Path("/proc/1").exists()


def _to_json(claim: Claim) -> str:
    return json.dumps(
        {
            "pid": claim.pid,
            "pid_namespace": claim.pid_namespace,
            "priority": claim.priority,
            "since_s": claim.since_s,
            "wants": claim.wants,
            "waits_since_s": claim.waits_since_s,
            "unit": claim.unit,
            "suits": dict(claim.suits),
            "holds": dict(claim.holds),
            "leaving": sorted(claim.leaving),
            "rules": claim.rules,
        }
    )


def _from_json(values: Mapping[str, object], name: str, uid: int) -> Claim:
    suits = _numbers(values["suits"], int)
    holds = _numbers(values["holds"], float)
    leaving = values["leaving"]
    if not isinstance(leaving, list):
        raise TypeError
    return Claim(
        name=name,
        uid=uid,
        pid=_whole(values["pid"], 1, 1 << 30),
        pid_namespace=str(values["pid_namespace"])[:64],
        priority=_whole(values["priority"], 0, 100),
        since_s=_number(values["since_s"]),
        wants=_whole(values["wants"], 0, _MOST_DEVICES),
        waits_since_s=_number(values["waits_since_s"]),
        unit=_whole(values["unit"], 1, _MOST_DEVICES),
        suits={device: int(parts) for device, parts in suits.items()},
        holds=holds,
        leaving=frozenset(DeviceId(str(each)) for each in leaving) & frozenset(holds),
        rules=str(values["rules"])[:64],
    )


def _numbers(value: object, kind: type[int] | type[float]) -> dict[DeviceId, float]:
    if not isinstance(value, dict) or len(value) > _MOST_DEVICES:
        raise TypeError
    if kind is int:
        return {_device_id(key): _whole(each, 1, WHOLE) for key, each in value.items()}
    return {_device_id(key): _number(each) for key, each in value.items()}


def _device_id(text: str) -> DeviceId:
    # For display: without line ends and terminal control characters.
    if not _DEVICE_ID.fullmatch(text):
        raise ValueError(f"{text!r:.40} is not the id of a device")
    return DeviceId(text)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e12:
        raise ValueError(f"{value!r:.40} is no number")
    return float(value)


def _whole(value: object, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{value!r:.40} is not a whole number from {least} to {most}")
    return value


def _check_folder(folder: Path) -> None:
    """Checks the folder's permissions.

    Raises:
        DeviceError: If others could remove or replace a claim there.
    """
    try:
        make_lock_folder(folder)
        found = os.lstat(folder)
    except OSError as error:
        raise DeviceError(f"The folder of claims, {folder}: {error.strerror}.") from error
    if not stat.S_ISDIR(found.st_mode):
        raise DeviceError(f"The folder of claims, {folder}, is no folder. Remove it.")
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        raise DeviceError(
            f"The folder of claims, {folder}, lets every user remove the files of others. Run: "
            f"chmod 1777 {folder}"
        )


def walk_warnings(read: ClaimsRead, known: set[str]) -> Iterator[str]:
    """New warnings."""
    for warning in read.warnings:
        if warning not in known:
            known.add(warning)
            yield warning
