"""Operating system functions for processes."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import termios

import psutil

_INT = struct.Struct("i")


def is_gone(pid: int) -> bool:
    """Whether a process has ended, including zombies."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def n_readable(pipe: int) -> int:
    """Bytes that wait in a pipe."""
    answer = fcntl.ioctl(pipe, termios.FIONREAD, bytes(_INT.size))
    n_bytes: int = _INT.unpack(answer)[0]
    return n_bytes


def signal_group(group: int, number: signal.Signals) -> bool:
    """Signals all processes of a group; returns whether it exists."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
