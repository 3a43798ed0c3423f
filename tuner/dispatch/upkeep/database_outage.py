"""A database that does not answer: how long, what waits for it, and what people are told."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import TracebackType

from tuner.errors import EXIT_STUDY_FAILED, StoreError
from tuner.host.clock import Instant
from tuner.store.connection.transactions import Unavailable
from tuner.store.records.recorder import Recorder

#: Shorter ones are not worth a word.
_SAID_AFTER_S = 5.0
_SAID_EVERY_S = 60.0
_TRY_EVERY_S = 1.0


class Outage:
    """Whether the database of a study answers.

    While it doesn't, training goes on and what is to be written waits; nothing new is begun.

    Args:
        recorder: Where that waits.
        say: Tells people, at once.
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
        """For how long already, seconds; 0 while the database answers."""
        return 0.0 if self._since_s is None else now.monotonic_s - self._since_s

    def may_be_over(self, now: Instant) -> bool:
        """Whether it is time to try again."""
        if now.monotonic_s - self._tried_at_s < _TRY_EVERY_S or not self._recorder.is_reachable:
            return False
        self._tried_at_s = now.monotonic_s
        return True

    def watch(self, now: Instant) -> _Watch:
        """Ends what is done within where the database does not answer; it is done again later."""
        return _Watch(self, now)

    def begin(self, now: Instant, error: Unavailable) -> None:
        """The database did not answer."""
        self._reason = str(error)
        if self._since_s is None:
            self._since_s = now.monotonic_s

    def end(self, now: Instant) -> None:
        """Everything that waited is written."""
        if self._said_at_s is not None:
            lasted = f"The database can be written again, after {self.lasts_s(now):.0f} s."
            dropped = self._recorder.n_dropped_reports
            if dropped:
                lasted += f" {dropped:,} reported values were too many to wait, and are lost."
            self._say(f"{lasted} All else that waited is written, and trials start again.")
        self._since_s = self._said_at_s = None

    def tell(self, now: Instant) -> None:
        """Says how it is, now and then."""
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
        """What to raise where nobody wants to wait any more.

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
    """Not a generator with `contextmanager`: one is entered for each report."""

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
