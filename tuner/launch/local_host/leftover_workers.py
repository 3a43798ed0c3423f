"""Finds remaining workers of a dead dispatcher on this host, and waits until they end.

The guardian gives the workers of a dead dispatcher some seconds. A start, or another dispatcher of
the study, must not launch trials meanwhile: two attempts would write to one checkpoint folder and
use one device. So each dispatcher has a file in the study's folder. Its fork server holds a lock on
it (flock(2)), and so do all processes forked from it: the kernel releases the lock when the last of
them is gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tuner.host.process_identity import Life, ProcessIdentity, life_of, own_process
from tuner.launch.local_host.guardian import GRACE_S

#: Waits that are shorter need no message.
_SAID_AFTER_S = 1.0
#: The guardian has sent SIGKILL long before.
KILL_AFTER_S = 4 * GRACE_S
GIVE_UP_AFTER_S = 2 * KILL_AFTER_S
_LOOK_EVERY_S = 0.05
#: A dispatcher that looks has the lock for an instant.
_N_LOCK_TRIES = 50

#: The lock of this process, inherited from the fork server.
_held: list[int] = []


def hold(file: Path) -> None:
    """Locks a dispatcher's file for this process and all that are forked from it."""
    # Where the file system has no locks no trial waits.
    with contextlib.suppress(OSError):
        lock = os.open(file, os.O_RDWR | os.O_NOFOLLOW)
        for _ in range(_N_LOCK_TRIES):
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
                break
            time.sleep(_LOOK_EVERY_S)
        _held.append(lock)


def held() -> tuple[int, ...]:
    """Descriptors that a program started by this process is to inherit."""
    return tuple(_held)


@dataclass(slots=True, kw_only=True)
class _Sight:
    """A dead dispatcher with remaining workers."""

    since_s: float
    is_said: bool = False
    is_killed: bool = False
    is_given_up: bool = False


class Remains:
    """The files of a study's dispatchers.

    Args:
        folder: Their folder; created when this process adds its own file.
        say: Shows a message to the user.
        now_s: The monotonic clock, in seconds.
    """

    def __init__(
        self, folder: Path, say: Callable[[str], None], now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder = folder
        self._say = say
        self._now_s = now_s
        self._here = own_process()
        self._sights: dict[Path, _Sight] = {}

    def add_own(self) -> Path | None:
        """Creates this dispatcher's file; None if that fails."""
        file = self._file_of(self._here)
        about = {"host": self._here.host, "pid": self._here.pid, **self._here.facts()}
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(about))
        except OSError:
            return None
        return file

    def remove_own(self) -> None:
        """After the end of all workers of this dispatcher."""
        with contextlib.suppress(OSError):
            self._file_of(self._here).unlink(missing_ok=True)

    def wait(self) -> None:
        """Waits for the workers of all dead dispatchers of this host, for a time."""
        for file in self._files():
            process = _read(file)
            if process is not None and life_of(process, here=self._here) is Life.GONE:
                while self._are_awaited(file, process):
                    time.sleep(_LOOK_EVERY_S)

    def are_left_by(self, process: ProcessIdentity) -> bool:
        """Whether the workers of a dead dispatcher are still to be waited for.

        Args:
            process: The dispatcher's process, which is gone.
        """
        return self._are_awaited(self._file_of(process), process)

    def _are_awaited(self, file: Path, process: ProcessIdentity) -> bool:
        if not _is_locked(file):
            self._sights.pop(file, None)
            with contextlib.suppress(OSError):
                file.unlink(missing_ok=True)
            return False
        sight = self._sights.setdefault(file, _Sight(since_s=self._now_s()))
        lasts_s = self._now_s() - sight.since_s
        of_whom = f"of the dispatcher that died (pid {process.pid})"
        if lasts_s >= _SAID_AFTER_S and not sight.is_said:
            sight.is_said = True
            self._say(f"Waiting for the worker processes {of_whom} to end.")
        if lasts_s >= KILL_AFTER_S and not sight.is_killed:
            sight.is_killed = True
            pids = _lasting_holders(file)
            self._say(
                f"Worker processes {of_whom} did not end within {KILL_AFTER_S:g} s and are "
                f"killed: pid {_joined(pids)}."
            )
            for pid in pids:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        if lasts_s >= GIVE_UP_AFTER_S and not sight.is_given_up:
            sight.is_given_up = True
            self._say(
                f"Worker processes {of_whom} are still there after {GIVE_UP_AFTER_S:g} s and "
                f"SIGKILL: pid {_joined(_holders(file))}. Trials start without waiting for them."
            )
        return not sight.is_given_up

    def _file_of(self, process: ProcessIdentity) -> Path:
        parts = (process.pid, process.start_ticks, process.pid_namespace, process.boot_id)
        return self._folder / "-".join(map(str, parts))

    def _files(self) -> list[Path]:
        try:
            return sorted(self._folder.iterdir())
        except OSError:
            return []


def _read(file: Path) -> ProcessIdentity | None:
    try:
        about = json.loads(file.read_text())
        return ProcessIdentity.from_facts(str(about["host"]), int(about["pid"]), about)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _is_locked(file: Path) -> bool:
    try:
        lock = os.open(file, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(lock)
    return False


def _holders(file: Path) -> Iterator[int]:
    """Processes of this user that have a file open."""
    wanted = str(file.resolve())
    for folder in Path("/proc").glob("[0-9]*/fd"):
        with contextlib.suppress(OSError):
            if any(os.readlink(each) == wanted for each in folder.iterdir()):
                yield int(folder.parent.name)


def _lasting_holders(file: Path) -> list[int]:
    """Holders at two checks; another dispatcher that checks the lock has the file open as well."""
    found = set(_holders(file))
    time.sleep(_LOOK_EVERY_S)
    return sorted(found.intersection(_holders(file)))


def _joined(pids: Iterator[int] | list[int]) -> str:
    return ", ".join(map(str, pids)) or "unknown"
