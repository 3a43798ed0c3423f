"""Device-hours per user and hour on a machine: the history in `tuner shares`.

Each user has one file in the folder of claims, written by that user's tuners. It is for display
only: wrong content affects no device.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

PREFIX = "used-"
_HOUR_S = 3600.0
_DAY_H = 24
_WEEK_H = 7 * 24
_MAX_BYTES = 64 * 1024


class Ledger:
    """Adds the devices that this process has held to its user's file, at intervals.

    Args:
        folder: Folder of the claims.
        now_s: The time in seconds UTC.
    """

    def __init__(self, folder: Path, now_s: Callable[[], float]) -> None:
        self._file = folder / f"{PREFIX}{os.getuid()}"
        self._now_s = now_s
        self._noted_at_s = now_s()
        #: Device-seconds by hour that are not written yet.
        self._open: dict[int, float] = {}

    def note(self, n_devices: float) -> None:
        """Adds the time since the last call, with the number of devices held."""
        now_s = self._now_s()
        passed_s = min(max(0.0, now_s - self._noted_at_s), _HOUR_S)
        self._noted_at_s = now_s
        if n_devices and passed_s:
            hour = int(now_s // _HOUR_S)
            self._open[hour] = self._open.get(hour, 0.0) + n_devices * passed_s

    def write(self) -> None:
        """Writes accumulated time to the file; later if another tuner of this user has it open."""
        if not self._open:
            return
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            file = os.open(self._file, flags, 0o644)
        except OSError:
            return
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            hours = _read(file, os.getuid())
            for hour, device_s in self._open.items():
                hours[hour] = hours.get(hour, 0.0) + device_s
            oldest = int(self._now_s() // _HOUR_S) - _WEEK_H
            kept = {str(hour): round(each, 1) for hour, each in hours.items() if hour >= oldest}
            os.ftruncate(file, 0)
            os.pwrite(file, json.dumps(kept).encode(), 0)
            self._open.clear()
        os.close(file)


def read_used(folder: Path, now_s: float) -> dict[int, tuple[float, float]]:
    """By user: device-hours of the last day and of the last week."""
    found: dict[int, tuple[float, float]] = {}
    with suppress(OSError):
        for path in sorted(folder.glob(f"{PREFIX}*")):
            uid, hours = _of(path)
            if uid is not None and path.name == f"{PREFIX}{uid}":
                hour = int(now_s // _HOUR_S)
                found[uid] = (_sum(hours, hour - _DAY_H), _sum(hours, hour - _WEEK_H))
    return found


def _sum(hours: Mapping[int, float], since: int) -> float:
    return sum(device_s for hour, device_s in hours.items() if hour > since) / _HOUR_S


def _of(path: Path) -> tuple[int | None, dict[int, float]]:
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None, {}
    try:
        uid = os.fstat(file).st_uid
        return uid, _read(file, uid)
    finally:
        os.close(file)


def _read(file: int, uid: int) -> dict[int, float]:
    """The content of a file; empty if it is no such file of this user."""
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != uid or found.st_nlink != 1:
        return {}
    try:
        values = json.loads(os.pread(file, _MAX_BYTES, 0))
        return {int(hour): float(device_s) for hour, device_s in values.items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}
