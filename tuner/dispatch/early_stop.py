"""Stops a study early: Ctrl-C, a command, a lost database file, a program that cannot work."""

from __future__ import annotations

import signal

from tuner.dispatch.attempts.attempt_table import AttemptTable
from tuner.dispatch.attempts.endings.conclusion import HOPELESS_REASON, Conclusion
from tuner.dispatch.attempts.live_attempt import LiveAttempt
from tuner.dispatch.attempts.stopping import AttemptStop
from tuner.dispatch.notice_queue import NoticeQueue
from tuner.dispatch.study_end import StopCause, StudyEnd
from tuner.dispatch.upkeep.allocation_time import AllocationTime
from tuner.dispatch.upkeep.database_rescue import Rescue
from tuner.domain.attempt import Cause, Ending, Outcome
from tuner.host.clock import Instant


class EarlyStop:
    """Stops a study: running attempts end or save, and no further attempt starts.

    Args:
        end: Records that the study is stopped.
        conclusion: Concludes attempts that were not launched.
        stopping: Stops running attempts.
        rescue: Checks whether the database file still exists.
        telling: Shows notices to the user.
        attempts: The attempts that hold devices.
        grace_s: Seconds that attempts have to end or save, for the message.
        allocation: Knows when the engine reclaims the node.
    """

    def __init__(
        self,
        *,
        end: StudyEnd,
        conclusion: Conclusion,
        stopping: AttemptStop,
        rescue: Rescue,
        telling: NoticeQueue,
        attempts: AttemptTable,
        grace_s: float,
        allocation: AllocationTime,
    ) -> None:
        self._end = end
        self._conclusion = conclusion
        self._stopping = stopping
        self._rescue = rescue
        self._say = telling.say
        self._attempts = attempts
        self._grace_s = grace_s
        self._allocation = allocation
        self._n_signals = 0

    def signalled(self, now: Instant, number: int) -> None:
        """Handles SIGINT and SIGTERM. An engine may send SIGTERM more than once."""
        if number != signal.SIGTERM or not self._allocation.is_lent:
            self.interrupt(now)
        elif not self._end.is_stopping:
            self._leave(now, "the engine ends the allocation")

    def look_at_deadline(self, now: Instant) -> None:
        """Lets trials save shortly before the allocation's time limit."""
        if self._allocation.must_save(now) and not self._end.is_stopping:
            self._leave(now, "the allocation is at its time limit")

    def _leave(self, now: Instant, reason: str) -> None:
        text = (
            f"Stopping: {reason}. Running trials have {self._grace_s:g} s to save; other "
            "allocations continue them."
        )
        self.begin(now, StopCause.NOTICE, reason, text)

    def interrupt(self, now: Instant) -> None:
        """Handles Ctrl-C: the first lets trials end or save, the second kills them."""
        self._n_signals += 1
        if self._n_signals == 1:
            text = (
                "Stopping: no trial starts any more; those that run have "
                f"{self._grace_s:g} s to end or save. Ctrl-C again kills them."
            )
            self.begin(now, StopCause.INTERRUPTED, "interrupted", text)
            return
        for live in self._attempts.active:
            self._stopping.kill(live, now)

    def begin(self, now: Instant, cause: StopCause, reason: str, text: str) -> None:
        """Stops the study.

        Args:
            now: The current time.
            cause: Why it stops.
            reason: The cause as text, for the study's record.
            text: The message to show.
        """
        self._end.stop(cause, reason)
        self._say(text)
        self._end.put_back_waiting()
        while (live := self._attempts.next_to_launch) is not None:
            self.conclude(now, live, Ending(outcome=Outcome.CANCELLED, cause=Cause.INTERRUPTED))
        for live in self._attempts.active:
            self._stopping.tell(live, now)

    def conclude(self, now: Instant, live: LiveAttempt, ending: Ending, rank: int = 0) -> None:
        """Concludes an attempt, and stops the study if its program cannot work.

        Args:
            now: The current time.
            live: An attempt with all processes gone.
            ending: Its ending.
            rank: The rank whose log explains the ending.
        """
        hopeless = self._conclusion.conclude(now, live, ending, rank)
        if hopeless:
            self.begin(now, StopCause.HOPELESS, HOPELESS_REASON, hopeless)

    def look_for_file(self, now: Instant) -> bool:
        """Stops the study if its database file is gone; returns whether it is."""
        told = self._rescue.look(now)
        if told and self._end.is_stopping:
            self._say(told)
        elif told:
            self.begin(now, StopCause.DATABASE_FILE_LOST, "database file lost", told)
        return bool(told)
