"""The process that starts the studies of a queue, one after the other."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from tuner.queue.entries import Entry, Queue

_LOOK_EVERY_S = 0.2
#: Whoever only looks whether there is a runner has the lock for a moment.
_PATIENCE_S = 2.0


class Runner:
    """Runs studies until none waits or a SIGTERM asks it to end.

    Args:
        queue: The studies.
    """

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._is_ending = False

    def run(self) -> None:
        """Works through the queue. A study that a SIGTERM ends goes on at the next start."""
        with _only_one(self._queue.folder, _PATIENCE_S) as is_alone:
            if not is_alone:
                return
            signal.signal(signal.SIGTERM, self._end)
            self._queue.put_back_running()
            while not self._is_ending and (entry := self._queue.take_next()) is not None:
                self._run(entry)

    def _run(self, entry: Entry) -> None:
        with self._queue.log(entry.id).open("ab") as log:
            try:
                process = subprocess.Popen(
                    [entry.python, "-m", "tuner.run", entry.file],
                    cwd=entry.folder,
                    env=dict(entry.environment),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                log.write(f"The study could not be started: {error}\n".encode())
                self._queue.note_ended(entry.id, 2)
                return
        self._queue.note_started(entry.id, process.pid)
        code = self._wait(process)
        if self._is_ending:
            self._queue.put_back_running()
        else:
            self._queue.note_ended(entry.id, code)

    def _wait(self, process: subprocess.Popen[bytes]) -> int:
        is_told = False
        while (code := process.poll()) is None:
            if self._is_ending and not is_told:
                is_told = True
                process.terminate()
            time.sleep(_LOOK_EVERY_S)
        return code

    def _end(self, _number: int, _frame: FrameType | None) -> None:
        self._is_ending = True


@contextmanager
def _only_one(folder: Path, patience_s: float = 0.0) -> Iterator[bool]:
    """Whether this is the only runner of the queue; the lock ends with the process."""
    give_up_at_s = time.monotonic() + patience_s
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / "runner.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while not (is_alone := _lock(lock)) and time.monotonic() < give_up_at_s:
            time.sleep(_LOOK_EVERY_S)
        yield is_alone
    finally:
        os.close(lock)


def _lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_running(folder: Path) -> bool:
    """Whether a process works through the queue."""
    if not (folder / "runner.lock").exists():
        return False
    with _only_one(folder) as is_alone:
        return not is_alone
