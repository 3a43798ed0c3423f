"""Shows for which trial devices are kept free, and for how long."""

from __future__ import annotations

from collections.abc import Callable

from tuner.devices.allocation.gathering import Gathering
from tuner.dispatch.supply.grants import Candidate
from tuner.domain.attempt import AttemptId

#: Shorter expected waits, in seconds, are not shown.
MIN_LEFT_S = 60.0


class GatheringNote:
    """Shows one message per attempt for which devices are kept free.

    Args:
        say: Shows a message to the user.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._told_of: AttemptId | None = None

    def poll(self, gathering: tuple[Candidate, Gathering] | None) -> None:
        """Shows a message if the trial has not been announced yet.

        Args:
            gathering: The trial for which devices are kept free, and these devices.
        """
        if gathering is None:
            return
        candidate, kept = gathering
        if candidate.attempt_id == self._told_of or kept.left_s is None or kept.left_s < MIN_LEFT_S:
            return
        self._told_of = candidate.attempt_id
        self._say(
            f"{kept.n_devices} devices are gathered for trial {candidate.asked.number}: all are "
            f"expected to be free in about {kept.left_s / 60:.0f} min. Until then only trials that "
            "are likely to end earlier start on them."
        )
