"""The entries of a user's queue, in one file that only this user can read."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from tuner.errors import ConfigError

#: Variables of the terminal that a queued study needs. Others are not stored: variables often
#: contain tokens.
KEPT_VARIABLES = (
    *("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH"),
    *("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "TUNER_SHARES", "XDG_STATE_HOME"),
)
_N_ENDED_KEPT = 20

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One study in the queue."""

    id: int
    study: str
    #: Absolute.
    file: str
    folder: str
    python: str
    priority: int
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Process id of the study, while it runs.
    pid: int | None = None
    #: None until it has ended.
    exit_code: int | None = None

    @property
    def is_waiting(self) -> bool:
        return self.pid is None and self.exit_code is None


def queue_folder(environ: Mapping[str, str]) -> Path:
    """The folder of this user's queue on this machine; several machines may share a home folder."""
    state = (
        environ.get("XDG_STATE_HOME")
        or Path(environ.get("HOME", "~")).expanduser() / ".local/state"
    )
    return Path(state) / "tuner" / "queue" / socket.gethostname()


class Queue:
    """Entries in the order in which they start, the running one first, ended ones last.

    Args:
        folder: Created if missing, for this user only.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file = folder / "entries.json"

    def log(self, entry_id: int) -> Path:
        """Path of a study's output."""
        return self.folder / f"{entry_id}.log"

    def entries(self) -> list[Entry]:
        """The entries of the queue.

        Raises:
            ConfigError: If the file is damaged.
        """
        try:
            values = json.loads(self._file.read_text(encoding="utf-8"))
            return [Entry(**each) for each in values]
        except FileNotFoundError:
            return []
        except (ValueError, TypeError) as error:
            problem = f"is damaged: {error}. Remove it, and put the studies into the queue again."
            raise ConfigError(problem, file=str(self._file)) from error

    def add(self, entry: Entry) -> Entry:
        """Adds a study behind those of equal or higher priority; assigns it a number."""

        def change(entries: list[Entry]) -> Entry:
            added = replace(entry, id=max((each.id for each in entries), default=0) + 1)
            ahead = [
                number
                for number, each in enumerate(entries)
                if each.exit_code is None
                and (each.pid is not None or each.priority >= entry.priority)
            ]
            entries.insert(ahead[-1] + 1 if ahead else 0, added)
            return added

        return self._change(change)

    def move(self, entry_id: int, place: int) -> None:
        """Moves a waiting study within the queue; 1 is the next to start."""

        def change(entries: list[Entry]) -> None:
            entry = _waiting(entries, entry_id)
            entries.remove(entry)
            n_before = sum(each.pid is not None for each in entries)
            n_waiting = sum(each.is_waiting for each in entries)
            entries.insert(n_before + min(max(place, 1) - 1, n_waiting), entry)

        self._change(change)

    def remove(self, entry_id: int) -> None:
        """Takes a study that waits out of the queue."""
        self._change(lambda entries: entries.remove(_waiting(entries, entry_id)))

    def take_next(self) -> Entry | None:
        """The study that starts now; None if none waits."""
        return next((each for each in self.entries() if each.is_waiting), None)

    def end_when_empty(self, end: Callable[[], None]) -> bool:
        """Ends the queue's process, unless a study waits; none can be added meanwhile.

        Args:
            end: Called only if no study waits.

        Returns:
            Whether it was called.
        """
        with self._locked():
            if any(each.exit_code is None for each in self.entries()):
                return False
            end()
            return True

    def note_started(self, entry_id: int, pid: int) -> None:
        """A study runs from now on."""

        def change(entries: list[Entry]) -> None:
            entry = _known(entries, entry_id)
            entries.remove(entry)
            entries.insert(0, replace(entry, pid=pid))

        self._change(change)

    def note_ended(self, entry_id: int, exit_code: int) -> None:
        """A study has ended."""

        def change(entries: list[Entry]) -> None:
            entry = _known(entries, entry_id)
            entries.remove(entry)
            entries.append(replace(entry, pid=None, exit_code=exit_code))
            ended = [each for each in entries if each.exit_code is not None]
            for old in ended[:-_N_ENDED_KEPT]:
                entries.remove(old)
                self.log(old.id).unlink(missing_ok=True)

        self._change(change)

    def put_back_running(self) -> None:
        """Requeues the study that ran before a crash or a reboot, as the next to start."""

        def change(entries: list[Entry]) -> None:
            entries[:] = [replace(each, pid=None) for each in entries]

        self._change(change)

    def _change(self, change: Callable[[list[Entry]], T]) -> T:
        with self._locked():
            entries = self.entries()
            result = change(entries)
            new = self._file.with_suffix(".new")
            new.write_text(json.dumps([asdict(each) for each in entries]), encoding="utf-8")
            os.replace(new, self._file)
            return result

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.folder.chmod(0o700)
            lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            problem = f"cannot hold the queue: {error.strerror}. Make it writable."
            raise ConfigError(problem, file=str(self.folder)) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _known(entries: list[Entry], entry_id: int) -> Entry:
    found = next((each for each in entries if each.id == entry_id), None)
    if found is None:
        ids = ", ".join(str(each.id) for each in entries if each.is_waiting) or "none"
        problem = f"is {entry_id}, but the queue has no such number. Waiting: {ids}."
        raise ConfigError(problem, key="tuner queue")
    return found


def _waiting(entries: list[Entry], entry_id: int) -> Entry:
    entry = _known(entries, entry_id)
    if entry.pid is not None:
        problem = f"is {entry_id}, which runs. To end it: tuner stop {entry.file}"
        raise ConfigError(problem, key="tuner queue")
    if entry.exit_code is not None:
        raise ConfigError(f"is {entry_id}, which has ended already.", key="tuner queue")
    return entry
