"""Processes that attempts left behind in sessions of their own, as torchrun's ranks are.

No signal to the group of a worker reaches them, and a torchrun that is killed leaves them running
on their devices. The fork server takes them over (PR_SET_CHILD_SUBREAPER), so that they are found
below it: what is no worker there, and has the variables of an attempt that is over. Not among its
children alone: what is killed takes a while to be gone, and its children are its own until then.
Linux only.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Collection, Iterator
from pathlib import Path

from tuner.attempt import AttemptId
from tuner.launch.request import ENV_ATTEMPT

_VARIABLE = f"{ENV_ATTEMPT}=".encode()


def end_strays(server: int, workers: Collection[int], running: Collection[AttemptId]) -> bool:
    """Kills them; says whether there were any.

    Args:
        server: Pid of the fork server.
        workers: Pids of those of its children that are known.
        running: Attempts that have a worker: what theirs have started is left alone.
    """
    strays = [
        pid
        for pid in _descendants(server, but=workers)
        if (attempt := _attempt_of(pid)) and attempt not in running
    ]
    for pid in strays:
        _kill(pid)
    return bool(strays)


def end_children() -> None:
    """Kills what this process has taken over, and what comes to it for that.

    For the end of the fork server, at which all its workers have ended.
    """
    while descendants := list(_descendants(os.getpid())):
        for pid in descendants:
            _kill(pid)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)


def _kill(pid: int) -> None:
    """The process, and its group where it leads one."""
    with contextlib.suppress(ProcessLookupError):
        if os.getpgid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)


def _children(pid: int) -> Iterator[int]:
    # What starts them is its main thread.
    with contextlib.suppress(OSError):
        yield from map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())


def _descendants(pid: int, *, but: Collection[int] = ()) -> Iterator[int]:
    for child in _children(pid):
        if child not in but:
            yield child
            yield from _descendants(child)


def _attempt_of(pid: int) -> AttemptId | None:
    """Whose variables a process was started with; None for what was forked only, or is dead."""
    with contextlib.suppress(OSError):
        for variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if variable.startswith(_VARIABLE):
                return AttemptId(variable.removeprefix(_VARIABLE).decode(errors="replace"))
    return None
