"""Ends what a dead dispatcher left behind: a small process that outlives it by a moment.

A dispatcher that is killed with -9 cannot end its workers, and no kernel call ends a whole
process group with its parent. So the dispatcher tells this program about each group it starts and
ends. When the pipe closes, for whatever reason, the groups that are left get SIGTERM, a moment to
save, and SIGKILL. Imports the standard library only: it starts in some 20 ms and holds 10 MB.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from typing import IO

GRACE_S = 5.0
_POLL_S = 0.05


class Guardian:
    """The dispatcher's handle on the guardian's process.

    Args:
        grace_s: From SIGTERM to SIGKILL for the groups that a dead dispatcher left.
    """

    def __init__(self, grace_s: float = GRACE_S) -> None:
        # By path, not with -m: the package's own imports would cost ten times the start.
        self._process = subprocess.Popen(
            [sys.executable, "-I", __file__, str(grace_s)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def watch(self, group: int) -> None:
        """Ends this process group should the dispatcher die."""
        self._tell(f"+{group}\n")

    def release(self, group: int) -> None:
        """The group has ended."""
        self._tell(f"-{group}\n")

    def close(self) -> None:
        """Lets the guardian end what is left, and waits for it. Safe to call twice."""
        with contextlib.suppress(OSError):
            self._pipe.close()
        self._process.wait()

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
    """SIGTERM, up to `grace_s` of time, SIGKILL."""
    left = {group for group in groups if _signal(group, signal.SIGTERM)}
    give_up_at_s = time.monotonic() + grace_s
    while left and time.monotonic() < give_up_at_s:
        time.sleep(_POLL_S)
        left = {group for group in left if _signal(group, 0)}
    for group in left:
        _signal(group, signal.SIGKILL)


def _signal(group: int, number: int) -> bool:
    """Whether the group was still there."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    end_groups(watch_until_closed(sys.stdin.buffer), float(sys.argv[1]))


if __name__ == "__main__":
    main()
