"""Concludes an attempt: outcome, device release, retry and notification."""

from __future__ import annotations

from dataclasses import replace

from tuner.dispatch.attempts.attempt_table import AttemptTable
from tuner.dispatch.attempts.endings.attempt_ending import ending_of
from tuner.dispatch.attempts.endings.hopeless_program import N_ALIKE, Streak, said_last
from tuner.dispatch.attempts.endings.trial_outcome import TrialOutcomes
from tuner.dispatch.attempts.launching import AttemptStart
from tuner.dispatch.attempts.live_attempt import LiveAttempt
from tuner.dispatch.attempts.transitions import move
from tuner.dispatch.attempts.widening import Widener
from tuner.dispatch.notice_queue import NoticeQueue
from tuner.dispatch.notices import Ended
from tuner.dispatch.study_end import StopCause, StudyEnd
from tuner.dispatch.supply.leasing import Leasing
from tuner.dispatch.upkeep.disk_space import Room
from tuner.domain.attempt import AttemptState, Cause, Ending, Outcome
from tuner.host.clock import Instant
from tuner.launch.failure_diagnosis import last_lines, readable
from tuner.launch.inbox import WorkerExited
from tuner.launch.local_host.oom_kills import count_oom_kills
from tuner.launch.protocols import Channel
from tuner.search.study import StudySearch
from tuner.store.records.recorder import Recorder

HOPELESS_REASON = "its first attempts all failed in the same way"


class Conclusion:
    """Concludes attempts whose processes are gone.

    Args:
        search: The study.
        recorder: Writes the states of attempts.
        channel: Closes the connections of workers.
        leasing: Is given the ending of an attempt, with its devices.
        launching: Has the paths of logs.
        settling: Decides the trial's outcome.
        widening: Knows the attempts restarted on more devices; None if `widen` is off.
        room: Knows whether the disk was full.
        telling: Notifies the user.
        end: Whether the study is stopping.
        attempts: The attempts that hold devices.
        stop_grace_s: Seconds that the other ranks have to end after the first rank has ended.
    """

    def __init__(
        self,
        *,
        search: StudySearch,
        recorder: Recorder,
        channel: Channel,
        leasing: Leasing,
        launching: AttemptStart,
        settling: TrialOutcomes,
        widening: Widener | None,
        room: Room,
        telling: NoticeQueue,
        end: StudyEnd,
        attempts: AttemptTable,
        stop_grace_s: float,
    ) -> None:
        self._search = search
        self._recorder = recorder
        self._channel = channel
        self._leasing = leasing
        self._launching = launching
        self._settling = settling
        self._widening = widening
        self._room = room
        self._telling = telling
        self._end = end
        self._attempts = attempts
        self._stop_grace_s = stop_grace_s
        self._streak = Streak(is_over=search.counts.has_ended_well)

    def note_exit(
        self, now: Instant, exited: WorkerExited
    ) -> tuple[LiveAttempt, Ending, int] | None:
        """Records that a process has exited.

        Returns:
            Once the last process is gone: the attempt, its ending, and the rank that explains it.
        """
        live = self._attempts[exited.attempt_id]
        rank = live.ranks[exited.rank]
        rank.exit_code, rank.is_lost = exited.exit_code, exited.is_lost
        if not live.is_signalled:
            live.note_end(rank)
            live.expect_exits(now.monotonic_s, self._stop_grace_s)
        if live.running_ranks:
            return None
        self._channel.dismiss(exited.attempt_id)
        is_killed = any((rank.exit_code or 0) < 0 for rank in live.ranks)
        number, ending = ending_of(
            live,
            objectives=self._search.objectives,
            output_of=lambda number: last_lines(self._launching.log_of(live.attempt, number)),
            n_oom_kills=count_oom_kills() if is_killed else live.n_oom_kills,
        )
        return live, ending, number

    def conclude(self, now: Instant, live: LiveAttempt, ending: Ending, rank: int = 0) -> str:
        """Settles an ended attempt and its trial; the devices are released later.

        Args:
            now: The current time.
            live: The attempt.
            ending: Its ending.
            rank: The rank whose log explains the ending.

        Returns:
            A message if the study cannot succeed and must stop; else empty.
        """
        live.deadline_s = None
        ending = self._final(live, ending)
        self._teach_leasing(now, live, ending, rank)
        live.attempt = replace(live.attempt, ending=ending, peak_memory_bytes=live.grant.peak_bytes)
        params = self._search.params_of(live.attempt.trial_id)
        before = self._search.best
        has_room = not self._room.note(ending, now.monotonic_s)
        is_hopeless = has_room and self._is_hopeless(live, ending)
        if is_hopeless:
            self._end.stop(StopCause.HOPELESS, HOPELESS_REASON)
        will_retry = self._settling.settle(
            live,
            ending,
            is_ours=self._is_ours(live, ending, has_room=has_room),
            may_retry=not self._end.is_hopeless,
            is_stopping=self._end.is_stopping,
        )
        at = live.ended_at(now)
        move(self._recorder, live, AttemptState.CLEARING, now, params=params, at=at)
        self._telling.add(
            Ended(
                attempt=live.attempt,
                ending=ending,
                is_best=self._search.best is not before,
                will_retry=will_retry,
                log_path=str(self._launching.log_of(live.attempt, rank)),
                params=live.params or params,
            )
        )
        return _hopeless_text(ending) if is_hopeless else ""

    def _final(self, live: LiveAttempt, ending: Ending) -> Ending:
        ending = self._settling.ending_of_trial(live, ending)
        ending = replace(ending, detail=readable(ending.detail))
        return self._room.judged(live.attempt.trial_id, ending)

    def _teach_leasing(self, now: Instant, live: LiveAttempt, ending: Ending, rank: int) -> None:
        self._leasing.ended(live.grant, ending.outcome, live.torch_peak_bytes, now.monotonic_s)
        if ending.cause is Cause.DEVICE_FAULT:
            broken = live.grant.devices
            if len(live.ranks) == len(broken):
                broken = (broken[rank],)
            self._leasing.supply.keep_apart(broken, said_last(ending), now.monotonic_s)

    def _is_hopeless(self, live: LiveAttempt, ending: Ending) -> bool:
        is_row = self._streak.note(ending)
        # A program that reports may still succeed.
        has_hope = any(
            each.last_step is not None for each in self._attempts.active if each is not live
        )
        return is_row and not has_hope and not self._end.is_stopping

    def _is_ours(self, live: LiveAttempt, ending: Ending, *, has_room: bool) -> bool:
        """Whether the program did not cause this ending."""
        is_told = ending.outcome is Outcome.CANCELLED and self._end.is_stopping
        is_spoilt = self._widening is not None and self._widening.has_spoilt(live, ending)
        return is_spoilt or is_told or not has_room or ending.outcome is Outcome.LOST


def _hopeless_text(ending: Ending) -> str:
    return (
        f"Stopping: {N_ALIKE} attempts failed in the same way and none has ended well, so "
        f"that further ones would fail too:\n    {said_last(ending)}\n"
        "Correct the program and start the same command again."
    )
