"""The process that starts the studies of a queue, one after the other."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

import psutil

from tuner.queue.entries import Entry, Queue

_LOOK_EVERY_S = 0.2
#: Whoever only looks whether there is a runner has the lock for a moment.
_PATIENCE_S = 2.0


class Runner:
    """Runs studies until none waits or a SIGTERM arrives.

    Args:
        queue: The studies.
        forget: Undoes the start of this process after a reboot. Called when no study waits any
            more.
    """

    def __init__(self, queue: Queue, forget: Callable[[], None]) -> None:
        self._queue = queue
        self._forget = forget
        self._is_ending = False

    def run(self) -> None:
        """Runs the queue. A study that a SIGTERM interrupts continues at the next start."""
        with _RunnerLock(self._queue.folder, _PATIENCE_S) as lock:
            if not lock.is_held:
                return

            def leave() -> None:
                self._forget()
                lock.close()

            signal.signal(signal.SIGTERM, self._end)
            self._await_orphans()
            if self._is_ending:
                return
            self._queue.put_back_running()
            while not self._is_ending:
                if (entry := self._queue.take_next()) is not None:
                    self._run(entry)
                # A study that is added now finds a process that works, or none.
                elif self._queue.end_when_empty(leave):
                    return

    def _await_orphans(self) -> None:
        """Waits for studies that have outlived their parent: two processes of one would conflict.

        Their results are unknown. If started again, a finished study ends at once.
        """
        orphans = [each for each in self._queue.entries() if _is_at_work(each)]
        while not self._is_ending and any(map(_is_at_work, orphans)):
            time.sleep(_LOOK_EVERY_S)

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


def _is_at_work(entry: Entry) -> bool:
    """Whether the process of a study is alive; its pid may have been reused."""
    if entry.pid is None:
        return False
    try:
        process = psutil.Process(entry.pid)
        return entry.file in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


class _RunnerLock:
    """The lock that the only runner of a queue has until its process ends."""

    def __init__(self, folder: Path, patience_s: float = 0.0) -> None:
        give_up_at_s = time.monotonic() + patience_s
        folder.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._file: int | None = os.open(folder / "runner.lock", flags, 0o600)
        while not (is_held := _lock(self._file)) and time.monotonic() < give_up_at_s:
            time.sleep(_LOOK_EVERY_S)
        self.is_held = is_held

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Safe to call twice."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


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
    with _RunnerLock(folder) as lock:
        return not lock.is_held
