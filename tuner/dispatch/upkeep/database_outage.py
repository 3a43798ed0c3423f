"""Database outages: duration, pending writes and messages."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import TracebackType

from tuner.errors import EXIT_STUDY_FAILED, StoreError
from tuner.host.clock import Instant
from tuner.store.connection.transactions import Unavailable
from tuner.store.records.recorder import Recorder

#: Shorter outages, in seconds, are not shown.
_SAID_AFTER_S = 5.0
_SAID_EVERY_S = 60.0
_TRY_EVERY_S = 1.0


class Outage:
    """Whether the database of a study answers.

    During an outage training continues, writes are queued, and nothing new starts.

    Args:
        recorder: Queues the writes.
        say: Shows a message to the user at once.
    """

    def __init__(self, recorder: Recorder, say: Callable[[str], None]) -> None:
        self._recorder = recorder
        self._say = say
        self._since_s: float | None = None
        self._said_at_s: float | None = None
        self._tried_at_s = -math.inf
        self._reason = ""

    @property
    def is_on(self) -> bool:
        return self._since_s is not None

    def lasts_s(self, now: Instant) -> float:
        """Seconds since the outage began; 0 while the database answers."""
        return 0.0 if self._since_s is None else now.monotonic_s - self._since_s

    def may_be_over(self, now: Instant) -> bool:
        """Whether the next retry is due."""
        if now.monotonic_s - self._tried_at_s < _TRY_EVERY_S or not self._recorder.is_reachable:
            return False
        self._tried_at_s = now.monotonic_s
        return True

    def watch(self, now: Instant) -> _Watch:
        """Context that ends early when the database does not answer; its work is repeated later."""
        return _Watch(self, now)

    def begin(self, now: Instant, error: Unavailable) -> None:
        """Records that the database did not answer."""
        self._reason = str(error)
        if self._since_s is None:
            self._since_s = now.monotonic_s

    def end(self, now: Instant) -> None:
        """Ends the outage; all queued writes are done."""
        if self._said_at_s is not None:
            lasted = f"The database can be written again, after {self.lasts_s(now):.0f} s."
            dropped = self._recorder.n_dropped_reports
            if dropped:
                lasted += f" {dropped:,} reported values were too many to wait, and are lost."
            self._say(f"{lasted} All else that waited is written, and trials start again.")
        self._since_s = self._said_at_s = None

    def tell(self, now: Instant) -> None:
        """Shows the state of the outage, at intervals."""
        if self.lasts_s(now) < _SAID_AFTER_S:
            return
        if self._said_at_s is None or now.monotonic_s - self._said_at_s >= _SAID_EVERY_S:
            self._said_at_s = now.monotonic_s
            self._say(
                f"The database could not be written for {self.lasts_s(now):.0f} s: {self._reason}. "
                "Training continues, its reports wait in memory "
                f"({self._recorder.n_waiting_reports:,} values), and all is written as soon as "
                "that is mended; until then no trial starts."
            )

    def give_up(self, unsaved: Sequence[str]) -> StoreError:
        """The error to raise when the wait for the database ends without success.

        Args:
            unsaved: Trials whose end is not in the database, with their values.
        """
        lost = f" Not in it: {'; '.join(unsaved)}." if unsaved else ""
        return StoreError(
            f"The database could not be written at the end: {self._reason}.{lost} Trials whose "
            "end it does not know are run again when the study is started again.",
            exit_code=EXIT_STUDY_FAILED,
        )


class _Watch:
    """Context manager. Not a generator with `contextmanager`: one is entered for each report."""

    def __init__(self, outage: Outage, now: Instant) -> None:
        self._outage = outage
        self._now = now

    def __enter__(self) -> None: ...

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> bool:
        if not isinstance(error, Unavailable):
            return False
        self._outage.begin(self._now, error)
        return True
