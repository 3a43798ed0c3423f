"""Full disks: failed trials are retried, and no trial starts until there is room."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tuner.devices.occupancy import size_text
from tuner.domain.attempt import Ending, Outcome
from tuner.launch.failure_diagnosis import is_disk_full, is_quota_reached, is_shared_memory_full
from tuner.launch.hints import FULL_ELSEWHERE, FULL_SHARED_MEMORY

#: Bytes that must be free in addition to what was free when a trial found the disk full.
_MARGIN_BYTES = 1024**2
_MARGIN_SHARE = 0.1
#: Seconds until a retry even without free space, doubled each time: another disk may have been
#: full, or files may have been removed in between.
_FIRST_WAIT_S = 5.0
_LONGEST_WAIT_S = 300.0
#: With this many bytes free on the study's disk, another file system may be the full one.
_AMPLE_BYTES = 1024**3
#: Attempts of one trial that may report a full disk while the study's disk has room: files may have
#: been removed in between.
_N_DOUBTFUL = 3
#: Ends the text of a failure due to another full file system.
_ELSEWHERE = "(not a full disk of the study)"


def met_full_disk(ending: Ending) -> bool:
    """Whether an attempt failed because a disk was full."""
    detail = ending.detail
    if not ending.outcome.is_failure or is_shared_memory_full(detail):
        return False
    return is_disk_full(detail) and not detail.endswith(_ELSEWHERE)


class Room:
    """Whether the disk of logs and checkpoints has room for trials to start.

    Args:
        folder: A folder on that disk.
        say: Shows a message to the user.
        free_bytes_of: Returns the free bytes on a folder's disk.
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
        #: By trial: full-disk failures while this disk had room.
        self._n_doubtful: Counter[int] = Counter()
        self._wanted_bytes = 0
        self._wait_s = _FIRST_WAIT_S
        #: When to retry in any case (monotonic seconds); None while there is room.
        self._again_at_s: float | None = None

    def judged(self, trial_id: int, ending: Ending) -> Ending:
        """The ending, with a hint if another file system than the study's was full.

        `/dev/shm` is recognised from the program's output. Other failures that recur for one trial
        while this disk has room count as failures of the trial: a wait would never end.
        """
        if ending.outcome.is_failure and is_shared_memory_full(ending.detail):
            return _hinted(ending, FULL_SHARED_MEMORY)
        if not met_full_disk(ending) or is_quota_reached(ending.detail):
            return ending
        free_bytes = self._free_bytes_of(self._folder)
        if free_bytes < _AMPLE_BYTES:
            return ending
        self._n_doubtful[trial_id] += 1
        if self._n_doubtful[trial_id] <= _N_DOUBTFUL:
            return ending
        return _hinted(ending, FULL_ELSEWHERE.format(free=size_text(free_bytes)))

    def note(self, ending: Ending, now_s: float) -> bool:
        """Whether an attempt failed because the disk was full; if so, trials wait for room."""
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
                "have passed. None is lost: failed ones continue from their checkpoints."
            )
            self._wait_s = min(2 * self._wait_s, _LONGEST_WAIT_S)
        self._wanted_bytes = int(free_bytes * (1 + _MARGIN_SHARE)) + _MARGIN_BYTES
        return True

    @property
    def is_awaited(self) -> bool:
        """Whether trials wait for room, as of the last check."""
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


def _hinted(ending: Ending, hint: str) -> Ending:
    return replace(ending, detail=f"{ending.detail}\n{hint} {_ELSEWHERE}")
