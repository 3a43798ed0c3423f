"""Locks on devices that are taken only if the shares allow it."""

from __future__ import annotations

import psutil

from tuner.devices.device import Device
from tuner.devices.locks import DeviceLocks
from tuner.devices.selection import NotNow
from tuner.shares.seat import Seat


class SharedLocks(DeviceLocks):
    """The GPUs and slices of this process, and its CPU slots where these are divided too.

    Args:
        seat: The place of this tuner among the others.
    """

    def __init__(self, seat: Seat) -> None:
        super().__init__(seat.folder, locks_cpu=seat.rules.cpu_slots is not None)
        self.seat = seat

    def acquire(self, device: Device) -> bool:
        """Claims a device.

        Raises:
            NotNow: If it is another user's share, or has not been returned yet.
        """
        if self.has(device):
            return True
        if not self.seat.may_take(device):
            raise NotNow(self.seat.why_not(device))
        if not super().acquire(device):
            # A moment ago it was another one's; or a program that has no claim keeps it locked.
            is_shared = self.seat.is_shared_out(device)
            reason = self.seat.why_not(device) if is_shared else self._locked_by(device)
            raise NotNow(reason)
        self.seat.note_held(device)
        return True

    def _locked_by(self, device: Device) -> str:
        pid = self.locked_by(device)
        who = "another program" if pid is None else _process_text(pid)
        return f"{who} keeps it locked, and claims nothing by the rules of shares"

    def release(self, device: Device) -> None:
        """Releases one claim; does nothing if there is none."""
        super().release(device)
        self.seat.note_released(device)

    def close(self) -> None:
        """Releases all devices and removes the claim. Safe to call twice."""
        super().close()
        self.seat.close()


def _process_text(pid: int) -> str:
    try:
        process = psutil.Process(pid)
        return f"{process.name()} (pid {pid}, user {process.username()})"
    except psutil.Error:
        return f"a process (pid {pid})"
