"""Timeouts for threads that exclude time spent waiting for a processor.

On a busy machine a transaction on a local file takes seconds although nothing is wrong with the
file. Linux counts for each thread the time it ran and the time it was runnable and waited
(Documentation/scheduler/sched-stats.rst, `/proc/<pid>/task/<tid>/schedstat`). All threads are added
up, since one may wait for the interpreter's lock while another holds it. On other systems all time
counts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_TASKS = Path("/proc/self/task")
_N_LOOKS = 8
#: Maximum wait as a multiple of the timeout, however busy the machine is.
_AT_MOST = 8.0
_NS_PER_S = 1e9


def await_working_thread(has_ended_within: Callable[[float], bool], patience_s: float) -> bool:
    """Waits for the work of another thread of this process.

    Args:
        has_ended_within: Waits at most this many seconds; returns whether the work has ended.
        patience_s: Seconds that the threads may wait for anything except a processor.

    Returns:
        Whether the work has ended.
    """
    look_every_s = patience_s / _N_LOOKS
    began_s = time.monotonic()
    # Mostly it ends within the first part, which costs no look.
    if has_ended_within(look_every_s):
        return True
    blocked_s, used_s = look_every_s, _processor_s()
    while blocked_s < patience_s and time.monotonic() - began_s < _AT_MOST * patience_s:
        part_began_s = time.monotonic()
        if has_ended_within(look_every_s):
            return True
        part_s = time.monotonic() - part_began_s
        used_before_s, used_s = used_s, _processor_s()
        # What a thread has waited is counted only once it runs.
        if not _is_runnable():
            blocked_s += max(0.0, part_s - (used_s - used_before_s))
    return False


def _processor_s() -> float:
    """Seconds for which the threads ran, or waited for a processor."""
    total_ns = 0
    for task in _tasks():
        with suppress(OSError, ValueError):
            ran_ns, waited_ns, _ = (task / "schedstat").read_bytes().split()
            total_ns += int(ran_ns) + int(waited_ns)
    return total_ns / _NS_PER_S


def _is_runnable() -> bool:
    """Whether another thread than this one runs, or waits for a processor."""
    own = str(threading.get_native_id())
    for task in _tasks():
        with suppress(OSError):
            if task.name != own and b") R " in (task / "stat").read_bytes():
                return True
    return False


def _tasks() -> list[Path]:
    try:
        return list(_TASKS.iterdir())
    except OSError:
        return []
