"""Hooks: the user's own programs, which receive events: a best trial, a failure, an alert, the end.

Each is started by its argv, never by a shell, and receives one JSON object on its standard input.
Nothing blocks while trials run: running programs are checked between two iterations of the
dispatcher, and others are queued. A program that fails or hangs only causes a message.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import TypeAlias

from tuner.dispatch.notices import Ended, Notice, Said, Snapshot, View
from tuner.dispatch.terms import Result
from tuner.domain.attempt import Outcome
from tuner.errors import TunerError
from tuner.launch.local_host.bounded_wait import ends_in_time
from tuner.launch.local_host.processes import signal_group
from tuner.launch.protocols import Guard
from tuner.monitoring import hook_entry
from tuner.monitoring.alert_watch import AlertWatch
from tuner.search.incumbent import BestTrial
from tuner.search_spaces import ParamValue

_MAX_AT_ONCE = 2
_MAX_WAITING = 100
_POLL_S = 0.05

Payload: TypeAlias = Mapping[str, object]


class Hook(Enum):
    """When one of the user's programs is started."""

    FINISH = "on_finish"
    BEST = "on_best"
    FAILURE = "on_failure"
    ALERT = "on_alert"


@dataclass(frozen=True, slots=True, kw_only=True)
class HookTerms:
    """The user's programs, and their limits."""

    #: Ready to be started; a hook that the study file does not name is absent.
    commands: Mapping[Hook, Sequence[str]]
    study: str
    #: Their working folder, and that of their output.
    folder: Path
    log: Path
    #: Timeout of one program, in seconds.
    limit_s: float = 30.0
    #: From SIGTERM to SIGKILL.
    grace_s: float = 5.0

    @property
    def last_wait_s(self) -> float:
        """At the end of the study: a program before `on_finish`, and that one."""
        return 2 * (self.limit_s + self.grace_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    hook: Hook
    payload: Payload


@dataclass(slots=True, kw_only=True)
class _Running:
    hook: Hook
    process: subprocess.Popen[bytes]
    #: When it gets the next signal.
    deadline_s: float
    is_too_late: bool = False


class Hooks:
    """A view that starts programs, and delegates to another view. Entered while it works.

    Args:
        terms: The programs and their limits.
        view: Shows notices.
        now: The time, in seconds.
        groups: Ends programs that this process cannot end; None for none.
    """

    def __init__(
        self,
        terms: HookTerms,
        view: View,
        now: Callable[[], float] = time.monotonic,
        groups: Guard | None = None,
    ) -> None:
        self._terms = terms
        self._view = view
        self._now = now
        self._groups = groups
        self._ended: list[Ended] = []
        self._line: deque[_Waiting] = deque()
        self._running: list[_Running] = []
        self._said: set[Hook] = set()
        self._n_dropped = 0
        self._last: Snapshot | None = None
        self._alerts = AlertWatch()
        self._is_finished = False

    def __enter__(self) -> Hooks:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        try:
            if isinstance(error, TunerError) and not self._is_finished:
                self._finish_after(error)
        finally:
            self._end_all()

    def show(self, notice: Notice) -> None:
        self._view.show(notice)
        if isinstance(notice, Ended):
            self._ended.append(notice)

    @property
    def refresh_every_s(self) -> float:
        # `on_finish` receives the counts of the last one.
        return 0.0 if self._terms.commands else self._view.refresh_every_s

    def refresh(self, snapshot: Snapshot) -> None:
        self._view.refresh(snapshot)
        self._last = snapshot
        for ended in self._ended:
            self._take(ended, snapshot.best)
        self._ended.clear()
        for alert in self._alerts.look(snapshot, self._now()):
            self._put(Hook.ALERT, {"alert": alert.kind.value, "text": alert.text}, snapshot.best)
        self.look()

    def look(self) -> None:
        """Ends programs that exceed their timeout, and starts queued ones."""
        for running in list(self._running):
            self._poll(running)
        while self._line and len(self._running) < _MAX_AT_ONCE:
            self._start(self._line.popleft())

    def finish(self, result: Result, best: BestTrial | None, wait: Callable[[float], bool]) -> None:
        """Sends the end event, and waits for the programs, for a limited time.

        Args:
            result: The study's result.
            best: Its best trial.
            wait: Waits for a number of seconds; returns whether the user wants an immediate end.
        """
        counts = {
            "completed": result.n_completed,
            "pruned": result.n_pruned,
            "failed": result.n_failed,
        }
        self._finish(result.reason, counts, best, wait, is_interrupted=result.is_interrupted)

    # -- what is told ------------------------------------------------------------------------

    def _take(self, ended: Ended, best: BestTrial | None) -> None:
        if ended.is_best and ended.ending.outcome is Outcome.COMPLETED:
            # Only the newest is still true.
            self._line = deque(each for each in self._line if each.hook is not Hook.BEST)
            self._put(Hook.BEST, _of_trial(ended), best)
        elif ended.ending.outcome.is_failure and not ended.will_retry:
            self._put(Hook.FAILURE, _of_trial(ended), best)

    def _put(self, hook: Hook, about: Payload, best: BestTrial | None) -> None:
        if hook not in self._terms.commands:
            return
        if len(self._line) >= _MAX_WAITING:
            self._n_dropped += 1
            self._say_failure(hook, f"was not started: {_MAX_WAITING} programs wait already")
            return
        head = {"hook": hook.value, "study": self._terms.study}
        payload = {**head, **about, "best": _of_best(best)}
        waiting = _Waiting(hook=hook, payload=payload)
        if hook is Hook.FINISH:
            self._line.appendleft(waiting)
        else:
            self._line.append(waiting)

    # -- programs ----------------------------------------------------------------------------

    def _start(self, waiting: _Waiting) -> None:
        try:
            process = self._begin(waiting)
        except OSError as error:
            self._say_failure(waiting.hook, f"could not be started: {error.strerror or error}")
            return
        deadline_s = self._now() + self._terms.limit_s
        self._running.append(_Running(hook=waiting.hook, process=process, deadline_s=deadline_s))

    def _begin(self, waiting: _Waiting) -> subprocess.Popen[bytes]:
        """Starts a process that becomes the program as soon as the guardian knows it."""
        reading, writing = os.pipe()
        with os.fdopen(writing, "wb", buffering=0) as may_start:
            try:
                process = self._launch(waiting, reading)
            finally:
                os.close(reading)
            if self._groups is not None:
                self._groups.watch(process.pid)
            with contextlib.suppress(BrokenPipeError):  # It was ended already.
                may_start.write(b"\n")
        return process

    def _launch(self, waiting: _Waiting, may_start: int) -> subprocess.Popen[bytes]:
        command = self._terms.commands[waiting.hook]
        _refuse_missing(command[0], self._terms.folder)
        # A file and no pipe, because a program may not read its input.
        with tempfile.TemporaryFile() as told, self._terms.log.open("ab") as log:
            told.write(json.dumps(waiting.payload).encode() + b"\n")
            told.seek(0)
            trial = waiting.payload.get("trial")
            about = "" if trial is None else f", trial {trial}"
            time_text = datetime.now(UTC).isoformat(timespec="seconds")
            log.write(f"-- {time_text} {waiting.hook.value}{about}\n".encode())
            log.flush()
            return subprocess.Popen(
                [sys.executable, "-I", "-S", hook_entry.__file__, str(may_start), *command],
                pass_fds=(may_start,),
                stdin=told,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._terms.folder,
                start_new_session=True,
            )

    def _poll(self, running: _Running) -> None:
        code = running.process.poll()
        if code is None:
            if self._now() >= running.deadline_s:
                number = signal.SIGKILL if running.is_too_late else signal.SIGTERM
                running.is_too_late = True
                running.deadline_s = self._now() + self._terms.grace_s
                signal_group(running.process.pid, number)
            return
        if running.is_too_late:
            # Its child processes may not have received the first signal.
            signal_group(running.process.pid, signal.SIGKILL)
        self._forget(running)
        if running.is_too_late:
            limit = f"{self._terms.limit_s:g} s"
            self._say_failure(running.hook, f"did not end within {limit}, and was ended")
        elif code:
            how = f"ended with exit code {code}" if code > 0 else f"was ended by signal {-code}"
            self._say_failure(running.hook, how)

    def _forget(self, running: _Running) -> None:
        self._running.remove(running)
        if self._groups is not None:
            self._groups.release(running.process.pid)

    def _say_failure(self, hook: Hook, problem: str) -> None:
        if hook in self._said:
            return
        self._said.add(hook)
        log = self._terms.log
        text = f"{hook.value} {problem}. The study continues. What it printed: {log}"
        self._view.show(Said(text=text))

    # -- the end -----------------------------------------------------------------------------

    def _finish_after(self, error: TunerError) -> None:
        """The study is over for another reason than its own."""
        last = self._last
        counts = {
            "completed": last.n_completed if last else 0,
            "pruned": last.n_pruned if last else 0,
            "failed": last.n_failed if last else 0,
        }
        best = last.best if last else None
        self._finish(str(error), counts, best, _sleep, is_interrupted=False)

    def _finish(
        self,
        reason: str,
        counts: Mapping[str, int],
        best: BestTrial | None,
        wait: Callable[[float], bool],
        *,
        is_interrupted: bool,
    ) -> None:
        self._is_finished = True
        about = {"reason": reason, "is_interrupted": is_interrupted, "counts": counts}
        self._put(Hook.FINISH, about, best)
        give_up_at_s = self._now() + self._terms.last_wait_s
        self.look()
        while (self._running or self._line) and self._now() < give_up_at_s:
            if wait(_POLL_S):
                break
            self.look()
        n_left_out = self._n_dropped + len(self._line)
        self._line.clear()
        if n_left_out:
            self._view.show(Said(text=f"Programs of hooks that were not started: {n_left_out}."))

    def _end_all(self) -> None:
        for running in list(self._running):
            signal_group(running.process.pid, signal.SIGKILL)
            ends_in_time(running.process, what="The program of a hook")
            self._forget(running)


def _refuse_missing(program: str, folder: Path) -> None:
    """Raises the error that an attempt to start the program would."""
    place = os.path.join(folder, program) if os.path.dirname(program) else program
    if shutil.which(place) is None:
        code = errno.EACCES if os.path.exists(place) else errno.ENOENT
        raise OSError(code, os.strerror(code), program)


def _of_trial(ended: Ended) -> dict[str, object]:
    ending = ended.ending
    return {
        "trial": ended.attempt.trial_number,
        "attempt": ended.attempt.number,
        "outcome": ending.outcome.value,
        "cause": ending.cause.value if ending.cause else None,
        "detail": ending.detail,
        "values": _plain(ending.values),
        "params": _plain(ended.params),
        "log": ended.log_path,
    }


def _of_best(best: BestTrial | None) -> dict[str, object] | None:
    if best is None:
        return None
    return {"trial": best.number, "values": _plain(best.values), "params": _plain(best.params)}


def _plain(values: Mapping[str, float] | Mapping[str, ParamValue]) -> dict[str, object]:
    return dict(values)


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False
