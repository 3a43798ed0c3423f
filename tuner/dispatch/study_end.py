"""Decides whether a study is over, and why."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto

from optuna.trial import TrialState

from tuner.dispatch.supply.budget_tracker import BudgetTracker
from tuner.dispatch.supply.leasing import Leasing
from tuner.dispatch.supply.stranded_trials import StrandedTrials
from tuner.dispatch.terms import Leave, Result
from tuner.dispatch.upkeep.allocation_time import AllocationTime
from tuner.dispatch.upkeep.database_outage import Outage
from tuner.dispatch.upkeep.disk_space import Room
from tuner.dispatch.upkeep.peers import Others
from tuner.errors import EXIT_STUDY_FAILED, DeviceError
from tuner.host.clock import Instant
from tuner.search.asked_trial import AskedTrial
from tuner.search.study import StudySearch
from tuner.store.records.recorder import Recorder


class StopCause(Enum):
    """Why a study is stopped early."""

    INTERRUPTED = auto()
    COMMANDED = auto()
    DATABASE_FILE_LOST = auto()
    #: The first attempts all failed in the same way.
    HOPELESS = auto()
    #: The engine reclaims the node.
    NOTICE = auto()
    #: The allocation is no longer needed; the study continues elsewhere.
    RELEASED = auto()


_LEAVES = {
    StopCause.NOTICE: Leave.NOTICE,
    StopCause.COMMANDED: Leave.COMMAND,
    StopCause.RELEASED: Leave.COMMAND,
}


class StudyEnd:
    """Decides whether further trials may start, and whether the study is over.

    Args:
        search: The study.
        recorder: Writes pending records before an error is raised.
        leasing: The devices, and the queue of trials for them.
        spending: The budget.
        stranding: Finds trials that fit on the devices of no dispatcher.
        others: The other dispatchers.
        outage: Whether the database answers.
        room: Whether the disk has room.
        allocation: Knows when the engine reclaims the node.
    """

    def __init__(
        self,
        *,
        search: StudySearch,
        recorder: Recorder,
        leasing: Leasing,
        spending: BudgetTracker,
        stranding: StrandedTrials,
        others: Others,
        outage: Outage,
        room: Room,
        allocation: AllocationTime,
    ) -> None:
        self._search = search
        self._recorder = recorder
        self._leasing = leasing
        self._spending = spending
        self._stranding = stranding
        self._others = others
        self._outage = outage
        self._room = room
        self._allocation = allocation
        self._leave: Leave | None = None
        self._is_too_short = False
        self._cause: StopCause | None = None
        self._stop_reason = ""
        #: Why no more trials start, while running trials finish.
        self._close_reason = ""
        #: Why the study ended, as text; empty while it runs.
        self.reason = ""

    @property
    def is_stopping(self) -> bool:
        """Whether no trial starts any more and running trials are being stopped."""
        return self._cause is not None

    @property
    def is_hopeless(self) -> bool:
        """Whether the program fails for any parameters."""
        return self._cause is StopCause.HOPELESS

    @property
    def leaves_paused_trials(self) -> bool:
        """Whether paused trials stay paused, for a later start."""
        return self.is_stopping or bool(self._stranding.reason) or self._leave is not None

    def stop(self, cause: StopCause, reason: str) -> None:
        """Records that the study is stopped early.

        Args:
            cause: Why.
            reason: The cause as text.
        """
        self._cause = cause
        self._stop_reason = self.reason = reason

    def close(self, reason: str) -> None:
        """Closes the study for new trials; running trials finish.

        Args:
            reason: Why, as text.
        """
        self._close_reason = self._close_reason or reason

    def why_no_more(self, now: Instant, *, is_new_trial: bool) -> str:
        """Why no further trial starts; empty while one may."""
        if self._stop_reason or self._close_reason:
            return self._stop_reason or self._close_reason
        if ending := self._allocation.why_no_more(now):
            return ending
        if is_new_trial and self._search.is_exhausted:
            return self._search.why_exhausted
        reached = self._spending.why_no_more(now, is_new_trial=is_new_trial)
        return f"budget reached: {reached}" if reached else ""

    def put_back(self, trials: Iterable[AskedTrial]) -> None:
        """Returns trials that were to continue here to the study, for a later start."""
        for asked in trials:
            self._search.put_back(asked.trial_id)

    def put_back_waiting(self) -> None:
        """Returns trials that have no devices yet to the study, for a later start."""
        for candidate in self._leasing.take_all():
            self._search.put_back(candidate.asked.trial_id)

    def is_reached(self, now: Instant, *, found_nothing: bool, is_paused: bool) -> bool:
        """Whether the dispatcher may end; called while no attempt runs.

        Args:
            now: The current time.
            found_nothing: Whether the search had no trial for a free device.
            is_paused: Whether a user has paused the study.

        Raises:
            DeviceError: If no device is left that a trial could run on.
        """
        self.reason = self.why_no_more(now, is_new_trial=self._leasing.n_waiting == 0)
        if self._outage.is_on:
            # Other dispatchers and waiting trials are unknown.
            return self.is_stopping and not (is_paused and not self.reason)
        if self._leaves(now):
            return True
        if is_paused and not self.reason:
            return False
        if not self.reason and self._leasing.is_stuck:
            raise self._no_device_left()
        if not self.reason:
            return self._has_stranded(now, found_nothing=found_nothing)
        if self.why_no_more(now, is_new_trial=False):
            return True
        must_wait = True
        with self._outage.watch(now):
            must_wait = self._others.must_be_waited_for(now)
        # The next round takes it up: what the others have done may be known since just now.
        return not must_wait and not self._search.lacks_a_winner

    def _leaves(self, now: Instant) -> bool:
        """Whether the dispatcher leaves its allocation while the study may continue."""
        if self.is_stopping:
            return False
        if self._allocation.why_no_more(now):
            self._leave = Leave.NOTICE
        elif idle := self._allocation.why_idle(now):
            self.reason, self._leave = self.reason or idle, Leave.IDLE
        return self._leave is not None

    def judge_allocation(self, now: Instant) -> None:
        """Notes, once nothing runs any more, that another allocation would gain nothing."""
        if self._left() is Leave.NOTICE and (why := self._allocation.why_too_short(now)):
            self.reason, self._is_too_short = why, True

    def _left(self) -> Leave | None:
        """Why the dispatcher leaves its allocation; None if it does not."""
        if self._is_too_short:
            return Leave.TOO_SHORT
        if self._cause is not None and self._allocation.is_lent:
            return _LEAVES.get(self._cause)
        return self._leave

    def _no_device_left(self) -> DeviceError:
        left = "Too few devices" if self._leasing.pool.devices else "No device"
        error = DeviceError(
            f"{left} of the study is left for a trial; the rest is lost. Nothing more can run here."
        )
        error.exit_code = EXIT_STUDY_FAILED
        self.put_back_waiting()
        self._recorder.commit()
        return error

    def _has_stranded(self, now: Instant, *, found_nothing: bool) -> bool:
        """Whether the only trials left need more devices than any dispatcher of the study has."""
        is_idle = found_nothing and not self._leasing.n_waiting
        with self._outage.watch(now):
            if self._stranding.look(now, is_idle=is_idle and not self._room.is_awaited):
                self.reason = self._stranding.reason
        return bool(self.reason)

    def result(self) -> Result:
        """The study's result when the dispatcher ends."""
        counts = self._search.counts
        return Result(
            is_interrupted=self.is_stopping and not self.is_hopeless,
            is_hopeless=self.is_hopeless or bool(self._search.study.guard.why_given_up),
            is_stranded=bool(self._stranding.reason),
            reason=self.reason,
            n_completed=counts.by_state()[TrialState.COMPLETE],
            n_pruned=counts.n_pruned,
            n_failed=counts.n_failed,
            n_paused=counts.n_paused,
            n_waiting=counts.n_waiting,
            leave=self._left(),
        )
