"""Stops a study before its own end: Ctrl-C, a command, a lost file, a program that cannot work."""

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
    """Stops a study: running attempts end or save, and nothing starts any more.

    Args:
        end: Notes that the study is stopped.
        conclusion: Ends attempts that have not been launched.
        stopping: Asks running attempts to end.
        rescue: Finds out whether the database file is still there.
        telling: Tells people.
        attempts: The attempts that hold devices.
        grace_s: Time that attempts have to end or save, for the message.
        allocation: When the engine takes the node back.
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
        """SIGINT or SIGTERM. In an allocation SIGTERM is the engine's, which may repeat it."""
        if number != signal.SIGTERM or not self._allocation.is_lent:
            self.interrupt(now)
        elif not self._end.is_stopping:
            self._leave(now, "the engine ends the allocation")

    def look_at_deadline(self, now: Instant) -> None:
        """Lets trials save where the end of the allocation is near."""
        if self._allocation.must_save(now) and not self._end.is_stopping:
            self._leave(now, "the allocation is at its time limit")

    def _leave(self, now: Instant, reason: str) -> None:
        text = (
            f"Stopping: {reason}. Running trials have {self._grace_s:g} s to save; other "
            "allocations continue them."
        )
        self.begin(now, StopCause.NOTICE, reason, text)

    def interrupt(self, now: Instant) -> None:
        """Ctrl-C: the first lets trials end or save, the second kills them."""
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
            now: The present.
            cause: Why.
            reason: The same, as the study's record has it.
            text: The message that is shown.
        """
        self._end.stop(cause, reason)
        self._say(text)
        self._end.put_back_waiting()
        while (live := self._attempts.next_to_launch) is not None:
            self.conclude(now, live, Ending(outcome=Outcome.CANCELLED, cause=Cause.INTERRUPTED))
        for live in self._attempts.active:
            self._stopping.tell(live, now)

    def conclude(self, now: Instant, live: LiveAttempt, ending: Ending, rank: int = 0) -> None:
        """Ends an attempt, and the study if its program cannot work.

        Args:
            now: The present.
            live: An attempt whose processes are gone.
            ending: How it ended.
            rank: Whose log tells why.
        """
        hopeless = self._conclusion.conclude(now, live, ending, rank)
        if hopeless:
            self.begin(now, StopCause.HOPELESS, HOPELESS_REASON, hopeless)

    def look_for_file(self, now: Instant) -> bool:
        """Stops the study where its database file is gone; says whether it was found to be."""
        told = self._rescue.look(now)
        if told and self._end.is_stopping:
            self._say(told)
        elif told:
            self.begin(now, StopCause.DATABASE_FILE_LOST, "database file lost", told)
        return bool(told)
