"""Commits records: at intervals, after an outage, and at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tuner.dispatch.early_stop import EarlyStop
from tuner.dispatch.notice_queue import NoticeQueue
from tuner.dispatch.study_end import StudyEnd
from tuner.dispatch.supply.leasing import Leasing
from tuner.dispatch.upkeep.database_outage import Outage
from tuner.dispatch.upkeep.database_rescue import Rescue
from tuner.errors import StoreError
from tuner.host.clock import Clock, Instant
from tuner.launch.inbox import SignalReceived
from tuner.launch.protocols import Events
from tuner.search.study import StudySearch
from tuner.store.records.recorder import Recorder

BEAT_EVERY_S = 10.0
#: Seconds to wait after Ctrl-C for a database that does not answer.
_LAST_WAIT_S = 30.0
_PAUSE_S = 0.25


class RecordWriter:
    """Commits records, and sends this dispatcher's heartbeat.

    Args:
        recorder: The records.
        search: The study, for what is unsaved if the user stops waiting.
        leasing: The devices, which the heartbeat lists.
        outage: Whether the database answers.
        rescue: Whether the database file still exists.
        early_stop: Stops the study if the file is gone.
        end: Whether the study is stopping.
        telling: Shows notices once their content is recorded.
        clock: The time.
        commit_every_s: Maximum seconds until a report is committed.
        started_at: When the dispatcher started.
    """

    def __init__(
        self,
        *,
        recorder: Recorder,
        search: StudySearch,
        leasing: Leasing,
        outage: Outage,
        rescue: Rescue,
        early_stop: EarlyStop,
        end: StudyEnd,
        telling: NoticeQueue,
        clock: Clock,
        commit_every_s: float,
        started_at: Instant,
    ) -> None:
        self._recorder = recorder
        self._search = search
        self._leasing = leasing
        self._outage = outage
        self._rescue = rescue
        self._early_stop = early_stop
        self._end = end
        self._telling = telling
        self._clock = clock
        self._commit_every_s = commit_every_s
        self._committed_at_s = self._beat_at_s = started_at.monotonic_s

    def lag_s(self, now: Instant) -> float:
        """Seconds since the last commit."""
        return now.monotonic_s - self._committed_at_s

    def beat(self, now: Instant) -> None:
        """Sends the heartbeat if it is due."""
        if now.monotonic_s - self._beat_at_s >= BEAT_EVERY_S:
            self._beat_at_s = now.monotonic_s
            self._recorder.beat(now.utc, self._leasing.supply.devices)

    def write_due(self, now: Instant) -> None:
        """Commits if the commit interval has passed or notices wait to be shown."""
        # Notices must be in the database before they are shown.
        if self.lag_s(now) >= self._commit_every_s or self._telling.has_news:
            self.write(now)

    def write(self, now: Instant) -> None:
        """Commits."""
        self._recorder.commit()
        self._committed_at_s = now.monotonic_s

    def recover(self, now: Instant, trials_at_work: Iterable[int]) -> bool:
        """Writes everything that was queued during an outage, if the database answers again.

        Args:
            now: The current time.
            trials_at_work: Ids of the trials that run here or wait for a device.
        """
        if not self._outage.may_be_over(now):
            return False
        self._recorder.commit()
        self._recorder.give_up_all_but(list(trials_at_work))
        self._outage.end(now)
        return True

    def write_last(self, events: Events, show: Callable[[Instant], None]) -> None:
        """Commits for the last time. After Ctrl-C, the wait for the database is limited.

        Args:
            events: Delivers Ctrl-C.
            show: Shows the state of the study.

        Raises:
            StoreError: If the database does not answer and the user stops waiting.
        """
        give_up_at_s = self._clock.now().monotonic_s + _LAST_WAIT_S
        while True:
            now = self._clock.now()
            if self._rescue.is_due(now):
                self._early_stop.look_for_file(now)
            if self._rescue.is_cut_off:
                return
            with self._outage.watch(now):
                if not self._outage.is_on or self._outage.may_be_over(now):
                    self._commit(now)
                    self._outage.end(now)
            if not self._outage.is_on:
                return
            self._outage.tell(now)
            show(now)
            is_told = any(isinstance(each, SignalReceived) for each in events.drain(_PAUSE_S))
            if is_told or (self._end.is_stopping and now.monotonic_s >= give_up_at_s):
                raise self._outage.give_up(self._search.unsaved())

    def _commit(self, now: Instant) -> None:
        try:
            self._recorder.commit()
        except StoreError:
            if not self._early_stop.look_for_file(now):
                raise
            self._recorder.commit()
