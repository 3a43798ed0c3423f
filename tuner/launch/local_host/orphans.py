"""Processes that attempts left in sessions of their own, such as torchrun's ranks.

A signal to a worker's group does not reach them, and a killed torchrun leaves them running on their
devices. The fork server adopts them (PR_SET_CHILD_SUBREAPER), so that they are among its
descendants: those that are no workers, and have the variables of an ended attempt. Not only its
children are searched: a killed process takes a while to be gone, and keeps its children until then.
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
    """Kills them; returns whether there were any.

    Args:
        server: Pid of the fork server.
        workers: Pids of its known children.
        running: Attempts that have a worker: their processes are not killed.
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

    Afterwards nothing could be found: the parent of its orphans would be process 1. A single scan
    does not prove that nothing is left: if a process dies between the reading of its parent and its
    own, its children are in neither.

    Args:
        server: Pid of the fork server, all of whose workers have ended.
        limit_s: Seconds to wait for processes that do not die, for example because of a disk.

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
    """Kills all adopted processes, including those adopted meanwhile.

    For the end of the fork server, when all its workers have ended.
    """
    while descendants := list(_descendants(os.getpid())):
        if not any([_kill(pid) for pid in descendants]):
            return  # What is left belongs to another user, and may never end.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)


def _kill(pid: int) -> bool:
    """Kills a process, and its group if it leads one; returns whether this user may."""
    try:
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(pid) == pid:
                os.killpg(pid, signal.SIGKILL)
            os.kill(pid, signal.SIGKILL)
    except PermissionError:
        return False
    return True


def _children(pid: int) -> Iterator[int]:
    """Children of all threads of a process."""
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
    """The attempt in a process's environment; None if it was only forked, or is dead."""
    with contextlib.suppress(OSError):
        for variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if variable.startswith(_VARIABLE):
                return AttemptId(variable.removeprefix(_VARIABLE).decode(errors="replace"))
    return None
