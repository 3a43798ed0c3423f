"""Detects that the only trials left need more devices than any dispatcher of the study has."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tuner.dispatch.supply.leasing import Leasing
from tuner.dispatch.upkeep.peers import Others
from tuner.host.clock import Instant
from tuner.search.study import StudySearch

#: Seconds to wait for a dispatcher with more devices to join.
STRANDED_AFTER_S = 10.0
_STRANDED = "the trials that are left need more devices than any dispatcher has"
_N_LISTED = 5


class StrandedTrials:
    """Watches queued trials that do not fit on the devices of this dispatcher.

    Args:
        search: The study.
        leasing: The devices here.
        others: The other dispatchers.
        say: Shows a message to the user.
    """

    def __init__(
        self, search: StudySearch, leasing: Leasing, others: Others, say: Callable[[str], None]
    ) -> None:
        self._search = search
        self._leasing = leasing
        self._others = others
        self._say = say
        self._since_s: float | None = None
        self._is_wait_said = False
        #: Why the study cannot continue; empty while it can.
        self.reason = ""

    def look(self, now: Instant, *, is_idle: bool) -> bool:
        """Whether the study cannot continue; called while nothing runs here.

        Args:
            now: The current time.
            is_idle: Whether nothing can be started here.

        Raises:
            StoreError: If the database cannot be used.
        """
        left = self._search.left_to_others() if is_idle else {}
        if not left:
            self._since_s = None
            return False
        n_needed = min(map(self._leasing.n_devices_for, left.values()))
        if self._others.may_run(n_needed, now):
            self._since_s = None
            self._say_wait(sorted(left), n_needed)
            return False
        if self._since_s is None:
            self._since_s = now.monotonic_s
        if now.monotonic_s - self._since_s < STRANDED_AFTER_S:
            return False
        self.reason = _STRANDED
        n_here = len(self._leasing.supply.devices)
        self._say(
            f"{_need(sorted(left), n_needed)}, and no dispatcher of the study has so many: this "
            f"one has {n_here}. Start the same command on a machine with {n_needed} devices."
        )
        return True

    def too_wide_text(self, numbers: Sequence[int]) -> str:
        """The message for trials that were put back because they do not fit here."""
        trials = f"Trial {numbers[0]} is" if len(numbers) == 1 else f"Trials {_listed(numbers)} are"
        n_devices = len(self._leasing.supply.devices)
        plural = "" if n_devices == 1 else "s"
        return (
            f"{trials} wider than what is left here ({n_devices} device{plural}), and left to a "
            "dispatcher that has enough."
        )

    def _say_wait(self, numbers: Sequence[int], n_needed: int) -> None:
        if not self._is_wait_said:
            self._is_wait_said = True
            n_devices = len(self._leasing.supply.devices)
            self._say(
                f"Nothing is left that fits on the {n_devices} devices here. "
                f"{_need(numbers, n_needed)}: another dispatcher runs them. This one stays, should "
                "one be lost. Ctrl-C ends it without harm."
            )


def _need(numbers: Sequence[int], n_needed: int) -> str:
    """`Trials 3 and 7 need 4 devices`; `5 trials ... need 2 devices or more`."""
    if len(numbers) == 1:
        return f"Trial {numbers[0]} needs {n_needed} devices"
    return f"{len(numbers)} trials ({_listed(numbers)}) need {n_needed} devices or more"


def _listed(numbers: Sequence[int]) -> str:
    more = ", ..." if len(numbers) > _N_LISTED else ""
    return ", ".join(map(str, numbers[:_N_LISTED])) + more
