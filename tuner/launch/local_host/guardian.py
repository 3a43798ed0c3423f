"""Ends the remaining processes of a dead dispatcher: a small process that outlives it briefly.

A dispatcher that is killed with -9 cannot end its workers. It therefore reports each process group
that it starts and ends to this program. When the pipe closes, for any reason, the remaining groups
get SIGTERM, time to save, and SIGKILL, and the folder of its sockets is removed. If both are
killed, the lifeline remains, which gives no time to save. Imports only the standard library: it
starts in some 20 ms and uses 10 MB.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

GRACE_S = 5.0
#: After the grace, from SIGKILL until its own end.
_CLOSE_S = 10.0
#: File that announces a SIGTERM to all workers (`announced.ALL`).
ENDS = "ends"
_POLL_S = 0.05


class Guardian:
    """The dispatcher's handle on the guardian's process.

    Args:
        grace_s: Seconds from SIGTERM to SIGKILL for the groups of a dead dispatcher.
        owns: Descriptors that it holds open as long as it lives.
        folder: Removed at the end, with its files.
    """

    def __init__(
        self, grace_s: float = GRACE_S, owns: Sequence[int] = (), folder: Path | None = None
    ) -> None:
        self._words = [str(grace_s), *([str(folder)] if folder else [])]
        self._grace_s = grace_s
        self._owns = tuple(owns)
        self._groups: set[int] = set()
        self._process = self._start()

    def watch(self, group: int) -> None:
        """Ends this process group should the dispatcher die."""
        self._groups.add(group)
        self._tell(f"+{group}\n")

    def release(self, group: int) -> None:
        """The group has ended."""
        self._groups.discard(group)
        self._tell(f"-{group}\n")

    def look(self) -> bool:
        """Restarts its process if it was ended; returns whether it was."""
        if self._process.poll() is None:
            return False
        with contextlib.suppress(OSError):
            self._pipe.close()
        self._process = self._start()
        for group in list(self._groups):
            self._tell(f"+{group}\n")
        return True

    def close(self) -> None:
        """Lets the guardian end the remaining processes, and waits for it. Safe to call twice."""
        with contextlib.suppress(OSError):
            self._pipe.close()
        try:
            self._process.wait(self._grace_s + _CLOSE_S)
        except subprocess.TimeoutExpired:
            # Stopped, or in uninterruptible sleep: it ends what is left once it continues. Nothing
            # is left to be ended where the launcher closes in order.
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_CLOSE_S)

    def _start(self) -> subprocess.Popen[bytes]:
        # By path, not with -m: the package's own imports would cost ten times the start.
        return subprocess.Popen(
            [sys.executable, "-I", __file__, *self._words],
            stdin=subprocess.PIPE,
            start_new_session=True,
            pass_fds=self._owns,
        )

    @property
    def _pipe(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    def _tell(self, line: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._pipe.write(line.encode())
            self._pipe.flush()


def watch_until_closed(lines: IO[bytes]) -> set[int]:
    """The groups that are left when the pipe closes."""
    groups: set[int] = set()
    for line in lines:
        group = int(line[1:])
        if line.startswith(b"+"):
            groups.add(group)
        else:
            groups.discard(group)
    return groups


def end_groups(groups: set[int], grace_s: float) -> None:
    """Sends SIGTERM and, after up to `grace_s`, SIGKILL; also to processes outside groups."""
    outside = _outside(groups)
    left = {group for group in groups if _signal(group, signal.SIGTERM)}
    give_up_at_s = time.monotonic() + grace_s
    while left and time.monotonic() < give_up_at_s:
        time.sleep(_POLL_S)
        outside |= _outside(left)
        left = {group for group in left if _signal(group, 0)}
    for group in left:
        _signal(group, signal.SIGKILL)
    for process in outside & _processes().keys():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process[0], signal.SIGKILL)


def _outside(groups: set[int]) -> set[tuple[int, str]]:
    """Processes that members of these groups started in sessions of their own, as torchrun does."""
    processes = _processes()
    below = {key[0] for key, (_, group) in processes.items() if group in groups}
    outside: set[tuple[int, str]] = set()
    while True:
        new = {
            key for key, (parent, _) in processes.items() if parent in below and key[0] not in below
        }
        if not new:
            return outside
        outside |= new
        below |= {pid for pid, _ in new}


def _processes() -> dict[tuple[int, str], tuple[int, int]]:
    """Parent and group by pid and start time, which distinguish a process from a later one."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else ()):
        with contextlib.suppress(OSError):
            with open(f"/proc/{name}/stat", errors="replace") as file:
                words = file.read().rpartition(")")[2].split()
            # After the name: state, parent, group; the start is 20th (proc_pid_stat(5)).
            found[int(name), words[19]] = (int(words[1]), int(words[2]))
    return found


def _signal(group: int, number: int) -> bool:
    """Whether the group was still there."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def announce(folder: str) -> None:
    """Lets workers leave at the SIGTERM that follows, as no dispatcher reads their messages."""
    with contextlib.suppress(OSError):
        os.close(os.open(os.path.join(folder, ENDS), os.O_WRONLY | os.O_CREAT, 0o600))


def remove(folder: str) -> None:
    """Removes a folder and its files; ignores what is already gone."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
        os.rmdir(folder)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups = watch_until_closed(sys.stdin.buffer)
    for folder in sys.argv[2:]:
        announce(folder)
    end_groups(groups, float(sys.argv[1]))
    for folder in sys.argv[2:]:
        remove(folder)


if __name__ == "__main__":
    main()
