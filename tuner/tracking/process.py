"""The dispatcher's side of trackers: a process for each, which never holds up the study."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tuner.dispatch.notices import Notice, Said, Snapshot, View
from tuner.launch.local_host.bounded_wait import ends_in_time
from tuner.launch.local_host.processes import signal_group
from tuner.tracking.worker import FINISH, Job, Report

#: At the end of the study.
_LAST_WAIT_S = 30.0
#: A slower round causes a message: the tracker hangs.
_SLOW_AFTER_S = 60.0
_POLL_S = 0.05
_MAX_BYTES = 65536
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(slots=True, kw_only=True)
class _Process:
    job: Job
    process: subprocess.Popen[bytes]
    #: Read without waiting.
    reports: int
    heard_at_s: float
    buffer: bytearray = field(default_factory=bytearray)
    last: Report | None = None
    has_said_problem: bool = False
    is_over: bool = False

    @property
    def name(self) -> str:
        return self.job.tracker


class Trackers:
    """A view that runs trackers, and delegates to another view.

    Args:
        view: Shows notices.
        log: Log of the trackers' own output.
        now: The time, in seconds.
    """

    def __init__(
        self,
        view: View,
        log: Path,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._view = view
        self._log = log
        self._now = now
        self._processes: list[_Process] = []

    def __enter__(self) -> Trackers:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._processes:
            self._end(each)

    @property
    def refresh_every_s(self) -> float:
        """As the other view; it sets the pace."""
        return self._view.refresh_every_s

    def show(self, notice: Notice) -> None:
        """Passes a notice on."""
        self._view.show(notice)

    def refresh(self, snapshot: Snapshot) -> None:
        """Passes a snapshot on, and shows what trackers have reported."""
        self._view.refresh(snapshot)
        self.look()

    def start(self, jobs: Sequence[Job]) -> None:
        """Starts a process for each tracker."""
        for job in jobs:
            try:
                self._processes.append(self._start(job))
            except OSError as error:
                self._say(f"track.{job.tracker} could not be started: {error.strerror}.")

    def look(self) -> None:
        """Reads the reports of the tracker processes."""
        for each in self._processes:
            if each.is_over:
                continue
            self._read(each)
            if each.process.poll() is not None:
                self._read(each)
                self._note_exit(each)
            elif self._now() - each.heard_at_s > _SLOW_AFTER_S:
                self._say_problem(each, f"has not answered for {_SLOW_AFTER_S:.0f} s")

    def finish(self, wait: Callable[[float], bool]) -> None:
        """Lets the trackers write the rest, for a limited time.

        Args:
            wait: Waits for a number of seconds; returns whether the user wants an immediate end.
        """
        self.look()
        for each in self._processes:
            with suppress(OSError):
                assert each.process.stdin is not None
                each.process.stdin.write(f"{FINISH}\n".encode())
                each.process.stdin.flush()
        give_up_at_s = self._now() + _LAST_WAIT_S
        while any(not each.is_over for each in self._processes):
            if self._now() > give_up_at_s or wait(_POLL_S):
                break
            self.look()
        for each in self._processes:
            self._end(each)
            self._say_rest(each)

    def _start(self, job: Job) -> _Process:
        read_end, write_end = os.pipe()
        try:
            with self._log.open("ab") as log:
                process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "tuner.tracking.worker", str(write_end)],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=[write_end],
                    # Base of relative paths in the study file.
                    cwd=job.folder,
                    env=_environment(),
                    start_new_session=True,
                )
        except OSError:
            os.close(read_end)
            raise
        finally:
            os.close(write_end)
        # If this process is killed, standard input closes: the tracker then writes what it buffers
        # and ends within seconds.
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            process.stdin.write(f"{job.to_line()}\n".encode())
            process.stdin.flush()
        os.set_blocking(read_end, False)
        return _Process(job=job, process=process, reports=read_end, heard_at_s=self._now())

    def _read(self, each: _Process) -> None:
        while select.select([each.reports], [], [], 0)[0]:
            read = os.read(each.reports, _MAX_BYTES)
            if not read:
                break
            each.buffer += read
        *lines, rest = each.buffer.split(b"\n")
        each.buffer = bytearray(rest)
        for line in lines:
            each.last = Report.from_line(bytes(line))
            each.heard_at_s = self._now()
            if each.last.problem:
                self._say_problem(each, f"cannot be written: {each.last.problem}")

    def _note_exit(self, each: _Process) -> None:
        each.is_over = True
        code = each.process.returncode
        if code:
            how = f"exit code {code}" if code > 0 else f"signal {-code}"
            self._say_problem(each, f"has ended with {how}")

    def _say_problem(self, each: _Process, problem: str) -> None:
        if each.has_said_problem:
            return
        each.has_said_problem = True
        self._say(f"track.{each.name} {problem}. The study continues. Details: {self._log}")

    def _say_rest(self, each: _Process) -> None:
        n = each.last.n_behind if each.last is not None else None
        if n == 0 and not each.process.returncode:
            return
        trials = {None: "Some trials are", 1: "1 trial is"}.get(n, f"{n} trials are")
        self._say(
            f"track.{each.name}: {trials} not written completely. The next start of the study on "
            "this host writes the rest."
        )

    def _say(self, text: str) -> None:
        self._view.show(Said(text=text))

    def _end(self, each: _Process) -> None:
        """Ends a process, with all that it has started. Safe to call twice."""
        if each.reports >= 0:
            signal_group(each.process.pid, signal.SIGKILL)
            ends_in_time(each.process, what=f"The tracker {each.name}")
            if each.process.stdin is not None:
                with suppress(OSError):
                    each.process.stdin.close()
            os.close(each.reports)
            each.reports = -1


def _environment() -> dict[str, str]:
    """With the folder of this package, which need not be installed."""
    paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
