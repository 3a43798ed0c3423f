"""A disk with no room: trials that met it are tried again, and none starts until there is some."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from tuner.attempt import Ending, Outcome
from tuner.devices.usage import size_text
from tuner.launch.diagnosis import is_disk_full

#: More than was free when a trial found no room, at least.
_MARGIN_BYTES = 1024**2
_MARGIN_SHARE = 0.1
#: After that one more try, and after twice that the next: it may have been another disk, or room
#: again before anybody looked.
_FIRST_WAIT_S = 5.0
_LONGEST_WAIT_S = 300.0


def met_full_disk(ending: Ending) -> bool:
    """Whether an attempt failed for want of room on a disk."""
    return ending.outcome.is_failure and is_disk_full(ending.detail)


class Room:
    """Whether trials may start, as far as the disk of their logs and checkpoints goes.

    Args:
        folder: On that disk.
        say: Tells people.
        free_bytes_of: How much is free where a folder is.
    """

    def __init__(
        self,
        folder: Path,
        say: Callable[[str], None],
        free_bytes_of: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free,
    ) -> None:
        self._folder = folder
        self._say = say
        self._free_bytes_of = free_bytes_of
        self._wanted_bytes = 0
        self._wait_s = _FIRST_WAIT_S
        #: When to try again in any case; None while there is room.
        self._again_at_s: float | None = None

    def heed(self, ending: Ending, now_s: float) -> bool:
        """Whether an attempt failed because the disk was full; no trial starts for a while then."""
        if not met_full_disk(ending):
            if ending.outcome is Outcome.COMPLETED:
                self._wait_s = _FIRST_WAIT_S
            return False
        free_bytes = self._free_bytes_of(self._folder)
        if self._again_at_s is None:
            self._again_at_s = now_s + self._wait_s
            self._say(
                f"A trial found no room on its disk. {size_text(free_bytes)} are free where "
                f"{self._folder} is; no trial starts until there is more, or {self._wait_s:g} s "
                "have passed. None is lost: those that failed go on from their checkpoints."
            )
            self._wait_s = min(2 * self._wait_s, _LONGEST_WAIT_S)
        self._wanted_bytes = int(free_bytes * (1 + _MARGIN_SHARE)) + _MARGIN_BYTES
        return True

    @property
    def is_awaited(self) -> bool:
        """Whether no trial starts for want of it, as of the last look."""
        return self._again_at_s is not None

    def is_there(self, now_s: float) -> bool:
        """Whether trials may start."""
        if self._again_at_s is None:
            return True
        has_more = self._free_bytes_of(self._folder) >= self._wanted_bytes
        if not has_more and now_s < self._again_at_s:
            return False
        self._again_at_s = None
        self._say("There is room on the disk again." if has_more else "The disk is tried again.")
        return True
