"""Holds the devices of ended attempts until their memory is free."""

from __future__ import annotations

from collections.abc import Callable

from tuner.devices.device import Device
from tuner.dispatch.attempts.attempt_table import AttemptTable
from tuner.dispatch.attempts.live_attempt import LiveAttempt
from tuner.dispatch.supply.leasing import Leasing
from tuner.host.clock import Instant

_NOTE_AFTER_S = 30.0


class DeviceRelease:
    """Checks when the devices of ended attempts can be leased again.

    Args:
        attempts: The attempts that hold devices.
        leasing: Knows the memory in use on devices.
        say: Shows a message to the user.
    """

    def __init__(
        self, attempts: AttemptTable, leasing: Leasing, say: Callable[[str], None]
    ) -> None:
        self._attempts = attempts
        self._leasing = leasing
        self._say = say

    def clear(self, now: Instant) -> list[LiveAttempt]:
        """Ended attempts whose device memory is free again."""
        return [live for live in self._attempts.clearing if self._is_clear(live, now)]

    def _is_clear(self, live: LiveAttempt, now: Instant) -> bool:
        unclear = self._leasing.find_unclear(live.grant, live.pids)
        if unclear is not None:
            self._note_wait(live, unclear, now)
        return unclear is None

    def _note_wait(self, live: LiveAttempt, device: Device, now: Instant) -> None:
        ended_at = live.attempt.ended_at
        waited_s = (now.utc - ended_at).total_seconds() if ended_at else 0.0
        if waited_s > _NOTE_AFTER_S and not live.is_wait_noted:
            live.is_wait_noted = True
            self._say(
                f"{device.label} waits: memory of {live.attempt} is not back after "
                f"{waited_s:.0f} s. `nvidia-smi` shows which process holds it."
            )
