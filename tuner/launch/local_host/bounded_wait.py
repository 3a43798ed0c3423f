"""Waits for the end of a process with a deadline. A process in uninterruptible sleep never ends."""

from __future__ import annotations

import logging
import subprocess

_log = logging.getLogger(__name__)

#: Seconds after SIGKILL; the kernel takes milliseconds unless something hangs.
END_S = 10.0


def ends_in_time(process: subprocess.Popen[bytes], *, what: str, within_s: float = END_S) -> bool:
    """Waits for a process that was signalled to end.

    Args:
        process: The process.
        what: Its name, for the log.
        within_s: Timeout in seconds.

    Returns:
        Whether it has ended; if not, this is logged and no trial waits for it any more.
    """
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        _log.warning("%s (pid %d) has not ended: not waited for", what, process.pid)
        return False
    return True
