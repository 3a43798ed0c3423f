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
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from tuner.domain.attempt import AttemptId
from tuner.launch.request import ENV_ATTEMPT

_VARIABLE = f"{ENV_ATTEMPT}=".encode()
_LOOK_EVERY_S = 0.01
#: A process that dies during a look hides its children from that look.
_N_QUIET_LOOKS = 2


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


def end_all(server: int, limit_s: float) -> bool:
    """Kills everything below the fork server, before the fork server itself is killed.

    After that nothing could be found: the parent of its orphans would be process 1. A single look
    does not show that nothing is left: if a process dies between the look at its parent and the
    look at itself, its children are in neither.

    Args:
        server: Pid of the fork server, all of whose workers have ended.
        limit_s: For processes that do not die, because they wait for a disk, for example.

    Returns:
        Whether nothing is left.
    """
    give_up_at_s = time.monotonic() + limit_s
    dead: set[int] = set()
    n_quiet = 0
    while n_quiet < _N_QUIET_LOOKS:
        found = set(_descendants(server))
        n_quiet = n_quiet + 1 if found <= dead else 0
        for pid in found - dead:
            _kill(pid)
        dead = {pid for pid in found if _is_zombie(pid)}
        if time.monotonic() > give_up_at_s:
            return False
        time.sleep(_LOOK_EVERY_S)
    return True


def end_children() -> None:
    """Kills what this process has taken over, and what comes to it for that.

    For the end of the fork server, at which all its workers have ended.
    """
    while descendants := list(_descendants(os.getpid())):
        if not any([_kill(pid) for pid in descendants]):
            return  # What is left belongs to another user, and may never end.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)


def _kill(pid: int) -> bool:
    """The process, and its group where it leads one; says whether this user may do that."""
    try:
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(pid) == pid:
                os.killpg(pid, signal.SIGKILL)
            os.kill(pid, signal.SIGKILL)
    except PermissionError:
        return False
    return True


def _children(pid: int) -> Iterator[int]:
    """Those of all threads of a process."""
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                yield from map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())


def _is_zombie(pid: int) -> bool:
    """Whether a process has ended, and only waits for its parent to take its exit code."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
        # Other threads may live on where the first one has ended.
        return state == "Z" and len(os.listdir(f"/proc/{pid}/task")) == 1
    except (OSError, IndexError):
        return False


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
