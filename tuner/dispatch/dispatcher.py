"""The loop that asks, leases, launches, reads reports, decides and records.

One thread owns all state. `tick` is a list of short steps, none of which waits; time comes in as
an argument. `talk` hears what workers say, `stopping` brings attempts to an end.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import assert_never

from optuna.trial import TrialState

from tuner.attempt import (
    AttemptId,
    AttemptState,
    Cause,
    Ending,
    Outcome,
)
from tuner.checkpoints.trial_folders import TrialFolders
from tuner.clock import Clock, Instant
from tuner.devices.reselection import Reselection
from tuner.dispatch.attempts.activity import Activity
from tuner.dispatch.attempts.device_release import Clearing
from tuner.dispatch.attempts.endings import Settling
from tuner.dispatch.attempts.hopeless_program import N_ALIKE, Streak, said_last
from tuner.dispatch.attempts.launching import Launching
from tuner.dispatch.attempts.live_attempt import LiveAttempt, ending_of
from tuner.dispatch.attempts.retries import Retries
from tuner.dispatch.attempts.stall_detector import Stalls
from tuner.dispatch.attempts.stopping import Stopping
from tuner.dispatch.attempts.transitions import move
from tuner.dispatch.attempts.widening import Widening
from tuner.dispatch.attempts.worker_messages import Talk
from tuner.dispatch.notice_queue import Telling
from tuner.dispatch.notices import Ended, Snapshot, Started, View
from tuner.dispatch.snapshot import StoreState, take_snapshot
from tuner.dispatch.supply.budget_tracker import Spending
from tuner.dispatch.supply.device_changes import DeviceChanges, Refused
from tuner.dispatch.supply.grants import Candidate, Grant
from tuner.dispatch.supply.leasing import Leasing
from tuner.dispatch.supply.stranded_trials import Stranding
from tuner.dispatch.supply.trial_source import Asking
from tuner.dispatch.terms import Result, Terms
from tuner.dispatch.upkeep.checkpoint_sweeper import Housekeeping
from tuner.dispatch.upkeep.checkpoint_sync import Saving
from tuner.dispatch.upkeep.commands import Orders, changed, told, told_of_refusal
from tuner.dispatch.upkeep.database_outage import Outage
from tuner.dispatch.upkeep.database_rescue import Rescue
from tuner.dispatch.upkeep.device_usage import Usage
from tuner.dispatch.upkeep.disk_space import Room
from tuner.dispatch.upkeep.idle_log import StudyFacts
from tuner.dispatch.upkeep.peers import Others
from tuner.dispatch.upkeep.telemetry_thread import Sampler
from tuner.errors import EXIT_STUDY_FAILED, DeviceError, StoreError
from tuner.launch.failure_diagnosis import last_lines, readable
from tuner.launch.inbox import Event, Received, SignalReceived, WorkerExited
from tuner.launch.local_host.oom_kills import count_oom_kills
from tuner.launch.plan import TrialPlan
from tuner.launch.protocols import Channel, Events, Launcher
from tuner.messages import TerminationRequested
from tuner.search.study import StudySearch
from tuner.store.records.commands import REFUSED, Command, Order
from tuner.store.records.dispatcher_starts import STALE_AFTER_S
from tuner.store.records.recorder import Recorder

_log = logging.getLogger(__name__)

_TICK_S = 0.25
#: While a GPU's memory is awaited it is looked at this often.
_CLEARING_TICK_S = 0.05
_BEAT_EVERY_S = 10.0
#: Of an outage: a minute after this dispatcher's last sign of life, others take its trials over.
_CUT_OFF_AFTER_S = STALE_AFTER_S - _BEAT_EVERY_S
_HOPELESS = "its first attempts all failed in the same way"
#: After Ctrl-C, for a database that does not answer.
_LAST_WAIT_S = 30.0


class Dispatcher:
    """Runs one study on the devices of one host.

    Args:
        search: The study: what to try, what to give up.
        recorder: Where everything that happens is written.
        launcher: Starts and ends workers.
        channel: Where workers report.
        leasing: Hands out devices.
        plan: What all attempts share.
        terms: Budget and time limits.
        view: Who watches.
        clock: The time.
        activity: What attempts do; None where nobody looks.
        housekeeping: Removes checkpoints that the study does not keep; None keeps all.
        saving: Tells the database of checkpoints; None where nobody looks.
        reselection: Chooses other devices where somebody asks for them; None where they are fixed.
        sampler: Looks at what devices do; None where nobody does.
        folders: Keeps the files of trials apart; None where trials have none.
    """

    def __init__(
        self,
        *,
        search: StudySearch,
        recorder: Recorder,
        launcher: Launcher,
        channel: Channel,
        leasing: Leasing,
        plan: TrialPlan,
        terms: Terms,
        view: View,
        clock: Clock,
        activity: Activity | None = None,
        housekeeping: Housekeeping | None = None,
        saving: Saving | None = None,
        reselection: Reselection | None = None,
        sampler: Sampler | None = None,
        folders: TrialFolders | None = None,
    ) -> None:
        self._search = search
        search.copy_states(plan.files, partial(_begun_at, folders, recorder) if folders else None)
        search.take_only(leasing.could_ever_fit)
        self._recorder = recorder
        self._launcher = launcher
        self._channel = channel
        self._leasing = leasing
        self._plan = plan
        self._terms = terms
        self._clock = clock
        self._housekeeping = housekeeping
        self._saving = saving
        self._folders = folders
        self._live: dict[AttemptId, LiveAttempt] = {}
        #: Those of them that are to be launched once the database knows of them.
        self._intended: list[LiveAttempt] = []
        self._n_signals = 0
        #: Why no trial starts any more and those that run are to end; empty while they may.
        self._stop_reason = ""
        self._streak = Streak(is_over=search.has_ended_well)
        self._started_at = clock.now()
        start_s = self._started_at.monotonic_s
        self._committed_at_s = self._beat_at_s = start_s
        self._telling = Telling(view, start_s)
        self._say = self._telling.say
        self._clearing = Clearing(leasing, self._say)
        self._room = Room(plan.files.root, self._say)
        self._others = Others(
            search,
            recorder.fleet,
            self._say,
            now=self._started_at,
            counts_devices=terms.budget.counts_devices,
        )
        self._stranding = Stranding(search, leasing, self._others, self._say)
        self._activity = activity
        self._usage = Usage(recorder, sampler)
        self._spending = self._new_spending()
        self._outage = Outage(recorder, self._say)
        self._rescue = Rescue(recorder, search)
        self._talk = self._new_talk()
        self._stopping = self._new_stopping()
        self._widening = self._new_widening() if self._terms.widens else None
        self._settling = self._new_settling()
        self._asking = self._new_asking()
        self._launching = self._new_launching()
        self._orders = Orders(recorder.commands, self._say)
        self._device_changes = DeviceChanges(reselection, leasing, recorder)
        self._end_reason = ""

    def _new_talk(self) -> Talk:
        return Talk(
            search=self._search,
            recorder=self._recorder,
            channel=self._channel,
            leasing=self._leasing,
            plan=self._plan,
            terms=self._terms,
            outage=self._outage,
            say=self._say,
        )

    def _new_stopping(self) -> Stopping:
        is_working = self._activity.is_working if self._activity else lambda live: True
        return Stopping(
            recorder=self._recorder,
            launcher=self._launcher,
            channel=self._channel,
            terms=self._terms,
            stalls=Stalls(self._terms.stall_timeout_s, is_working),
        )

    def _new_widening(self) -> Widening:
        return Widening(
            search=self._search,
            leasing=self._leasing,
            stopping=self._stopping,
            recorder=self._recorder,
            files=self._plan.files,
            say=self._say,
        )

    def _new_settling(self) -> Settling:
        return Settling(
            search=self._search,
            recorder=self._recorder,
            leasing=self._leasing,
            files=self._plan.files,
            retries=Retries(self._terms.retries),
            saving=self._saving,
            say=self._say,
            folders=self._folders,
        )

    def _new_spending(self) -> Spending:
        return Spending(
            self._terms.budget,
            search=self._search,
            recorder=self._recorder,
            usage=self._usage,
            live=self._live,
            started_at=self._started_at,
            say=self._say,
        )

    def _new_asking(self) -> Asking:
        return Asking(
            search=self._search,
            settling=self._settling,
            spending=self._spending,
            leasing=self._leasing,
            fleet=self._recorder.fleet,
            usage=self._usage,
            live=self._live,
            clock=self._clock,
            why_no_more=self._why_no_more,
            is_repeatable=self._terms.is_repeatable,
        )

    def _new_launching(self) -> Launching:
        return Launching(
            recorder=self._recorder,
            launcher=self._launcher,
            channel=self._channel,
            leasing=self._leasing,
            plan=self._plan,
            timeout_s=self._terms.launch_timeout_s,
            folders=self._folders,
        )

    @property
    def device_s(self) -> float:
        """Seconds for which attempts of this start held devices, each device by itself."""
        return self._spending.device_s

    def run(self, events: Events) -> Result:
        """Works until the budget is reached or the user ends it, and every attempt is over.

        Raises:
            StoreError: If the database refuses, or does not answer at the end and the user does
                not want to wait for it.
            DeviceError: If no device is left.
        """
        happened: Sequence[Event] = ()
        while True:
            self.tick(self._clock.now(), happened)
            if self._is_done():
                break
            happened = events.drain(self._patience_s())
        self._put_back_waiting()
        if not self._stop_reason and not self._stranding.reason:
            self._search.end_paused()
        if self._saving is not None:
            self._saving.finish()
        self._usage.hand_over()
        self._recorder.end(self._clock.now().utc, self._end_reason)
        self._write_the_rest(events)
        self._look_for_file(self._clock.now())
        self._rescue.end()
        return self._result()

    def keep_house(self) -> None:
        """After `run`: removes the checkpoints that the study does not keep."""
        if self._housekeeping is None:
            return
        self._housekeeping.finish()
        self._forget_removed(self._housekeeping)
        try:
            self._recorder.write_removals()
        except StoreError as error:
            # The study is over and well; only what `tuner why` shows of files is out of date.
            _log.warning("Removed checkpoints are not told to the database: %s", error)

    def _forget_removed(self, housekeeping: Housekeeping) -> None:
        for number in housekeeping.take_removed():
            if self._saving is not None:
                self._saving.forget(number)

    def tick(self, now: Instant, happened: Iterable[Event]) -> None:
        """One round: hear what happened, act on it, write it down, show it."""
        self._hear(now, happened)
        self._stopping.enforce_deadlines(list(self._live.values()), now)
        self._release_cleared_devices(now)
        if self._rescue.is_due(now):
            self._look_for_file(now)
        try:
            with self._outage.watch(now):
                self._use_database(now)
        except StoreError:
            # Of another file, perhaps, which is at the path by now.
            if not self._look_for_file(now):
                raise
        self._leave_to_others(now)
        self._note_use(now)
        self._outage.tell(now)
        self._tell_people(now)

    def _note_use(self, now: Instant) -> None:
        idle = self._leasing.idle
        study = self._facts(now) if idle else StudyFacts()
        self._usage.note(now, self._live.values(), idle, study)

    def _facts(self, now: Instant) -> StudyFacts:
        n_waiting = self._leasing.n_waiting
        is_over = bool(self._why_no_more(now, is_new_trial=not n_waiting))
        return StudyFacts(
            is_over=is_over or (self._asking.found_nothing and not n_waiting),
            is_paused=bool(self._orders.paused_by),
            is_database_away=self._outage.is_on,
            is_disk_full=self._room.is_awaited,
            is_gathering=self._leasing.is_gathering,
        )

    def _use_database(self, now: Instant) -> None:
        if self._outage.is_on and not self._recovers(now):
            return
        for command in self._orders.hear(now):
            self._obey(now, command)
        self._others.heed(now)
        self._fill_devices(now)
        self._beat(now)
        self._usage.heed(now)
        self._record(now)
        if self._housekeeping is not None:
            for note in self._housekeeping.heed(now):
                self._say(note)
            self._forget_removed(self._housekeeping)
        if self._saving is not None:
            self._saving.heed(now, lambda: (live.attempt for live in self._live.values()))
        if not self._orders.paused_by and (ahead := self._asking.ahead(now)) is not None:
            self._leasing.put(ahead)

    # -- hearing -----------------------------------------------------------------------------

    def _hear(self, now: Instant, happened: Iterable[Event]) -> None:
        for event in happened:
            match event:
                case Received(source=source, message=message):
                    live = self._live.get(message.attempt_id)
                    # Else it speaks for an attempt that is over.
                    if live is None or live.attempt.state is AttemptState.CLEARING:
                        continue
                    if isinstance(message, TerminationRequested):
                        self._stopping.heed_termination(live, now)
                    else:
                        self._talk.hear(now, live, source, message)
                case WorkerExited():
                    self._hear(now, self._channel.read_rest(event.attempt_id))
                    self._reap(now, event)
                case SignalReceived():
                    self._interrupt(now)
                case _:
                    assert_never(event)

    # -- endings -----------------------------------------------------------------------------

    def _reap(self, now: Instant, exited: WorkerExited) -> None:
        """A process is gone. With the last one the trial has an ending; devices are awaited."""
        live = self._live[exited.attempt_id]
        rank = live.ranks[exited.rank]
        rank.exit_code, rank.is_lost = exited.exit_code, exited.is_lost
        if not live.is_signalled:
            live.note_end(rank)
            live.expect_exits(now.monotonic_s, self._terms.stop_grace_s)
        if live.running_ranks:
            return
        self._channel.dismiss(exited.attempt_id)
        is_killed = any((rank.exit_code or 0) < 0 for rank in live.ranks)
        number, ending = ending_of(
            live,
            objectives=self._search.objectives,
            output_of=lambda number: last_lines(self._launching.log_of(live.attempt, number)),
            n_oom_kills=count_oom_kills() if is_killed else live.n_oom_kills,
        )
        self._conclude(now, live, ending, rank=number)

    def _conclude(self, now: Instant, live: LiveAttempt, ending: Ending, rank: int = 0) -> None:
        """The attempt is over; `rank` is the one whose log tells why."""
        live.deadline_s = None
        ending = self._settling.ending_of_trial(live, ending)
        ending = replace(ending, detail=readable(ending.detail))
        ending = self._room.judged(live.attempt.trial_id, ending)
        self._leasing.ended(live.grant, ending.outcome, live.torch_peak_bytes, now.monotonic_s)
        if ending.cause is Cause.DEVICE_FAULT:
            broken = live.grant.devices
            if len(live.ranks) == len(broken):
                broken = (broken[rank],)
            self._leasing.keep_apart(broken, said_last(ending), now.monotonic_s)
        live.attempt = replace(live.attempt, ending=ending, peak_memory_bytes=live.grant.peak_bytes)
        params = self._search.params_of(live.attempt.trial_id)
        before = self._search.best
        # One that reports may end well yet.
        has_hope = any(
            each.last_step is not None
            for each in self._live.values()
            if each is not live and each.attempt.state is not AttemptState.CLEARING
        )
        has_room = not self._room.heed(ending, now.monotonic_s)
        is_row = has_room and self._streak.note(ending)
        is_hopeless = is_row and not has_hope and not self._stop_reason
        self._stop_reason = self._stop_reason or (_HOPELESS if is_hopeless else "")
        is_told = ending.outcome is Outcome.CANCELLED and bool(self._stop_reason)
        is_ours = is_told or not has_room or ending.outcome is Outcome.LOST
        if self._widening is not None:
            is_ours = self._widening.has_spoilt(live, ending) or is_ours
        will_retry = self._settling.settle(
            live,
            ending,
            is_ours=is_ours,
            may_retry=self._stop_reason != _HOPELESS,
            is_stopping=bool(self._stop_reason),
        )
        at = live.ended_at(now)
        move(self._recorder, live, AttemptState.CLEARING, now, params=params, at=at)
        self._clearing.add(live)
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
        if is_hopeless:
            self._stop(
                now,
                _HOPELESS,
                f"Stopping: {N_ALIKE} attempts failed in the same way and none has ended well, so "
                f"that further ones would fail too:\n    {said_last(ending)}\n"
                "Correct the program and start the same command again.",
            )

    # -- what people ask for -----------------------------------------------------------------

    def _obey(self, now: Instant, command: Command) -> None:
        detail = told(command)
        if "devices" in command.arguments:
            try:
                detail = f"{detail} {self._change_devices(now, command)}"
            except Refused as error:
                detail = told_of_refusal(command, str(error))
                self._recorder.note(REFUSED, at=now.utc, detail=detail)
                self._say(detail)
                return
        self._recorder.note(command.order.value, at=now.utc, detail=detail)
        match command.order:
            case Order.STOP if command.trial_number is not None:
                self._stop_trial(now, command)
                return
            case Order.STOP if self._stop_reason:
                return
            case Order.STOP:
                self._stop(now, f"stopped by {command.asked_by}", told(command))
                return
            case Order.SET:
                self._spending.budget = budget = changed(self._spending.budget, command)
                self._recorder.allow(budget)
                self._others.count_devices(budget.counts_devices)
            case Order.PAUSE:
                self._put_back_waiting()
            case Order.RESUME | Order.RETRY:
                pass  # It is looked up where trials start.
            case _:
                assert_never(command.order)
        self._say(detail)

    def _change_devices(self, now: Instant, command: Command) -> str:
        """
        Raises:
            Refused: With the reason.
        """
        done = self._device_changes.carry_out(command.arguments["devices"])
        held = [device for live in self._live.values() for device in live.grant.devices]
        self._usage.look_at(list(dict.fromkeys([*self._leasing.devices, *held])))
        self._recorder.beat(now.utc, self._leasing.devices)
        return done

    def _stop_trial(self, now: Instant, command: Command) -> None:
        for live in self._live.values():
            is_meant = live.attempt.trial_number == command.trial_number
            if is_meant and live.attempt.state is not AttemptState.CLEARING:
                self._say(told(command))
                self._stopping.tell(live, now, Cause.COMMANDED, told(command))

    # -- stopping ----------------------------------------------------------------------------

    def _interrupt(self, now: Instant) -> None:
        """Ctrl-C: once lets trials end or save, twice kills."""
        self._n_signals += 1
        if self._n_signals == 1:
            self._stop(
                now,
                "interrupted",
                "Stopping: no trial starts any more; those that run have "
                f"{self._terms.stop_grace_s:g} s to end or save. Ctrl-C again kills them.",
            )
            return
        for live in self._live.values():
            if live.attempt.state is not AttemptState.CLEARING:
                self._stopping.kill(live, now)

    def _stop(self, now: Instant, reason: str, text: str) -> None:
        """Lets what runs end or save, and starts nothing any more."""
        self._stop_reason = self._end_reason = reason
        self._say(text)
        self._put_back_waiting()
        while self._intended:
            live = self._intended.pop()
            cancelled = Ending(outcome=Outcome.CANCELLED, cause=Cause.INTERRUPTED)
            self._conclude(now, live, cancelled)
        for live in self._live.values():
            if live.attempt.state is not AttemptState.CLEARING:
                self._stopping.tell(live, now)

    def _put_back_waiting(self) -> None:
        """What has no devices yet waits for a later start."""
        for candidate in self._leasing.take_all():
            self._search.put_back(candidate.asked.trial_id)

    # -- devices -----------------------------------------------------------------------------

    def _release_cleared_devices(self, now: Instant) -> None:
        for live in self._clearing.take_clear(now):
            self._finish(live, now)

    def _finish(self, live: LiveAttempt, now: Instant) -> None:
        move(self._recorder, live, AttemptState.FINISHED, now)
        self._asking.ended(now.monotonic_s - live.leased_at_s)
        self._spending.ended(live, now)
        self._leasing.release(live.grant)
        self._usage.has_changed = True
        if self._activity is not None:
            self._activity.forget(live.attempt.id)
        if self._saving is not None:
            self._saving.over(live.attempt)
        del self._live[live.attempt.id]
        if live.outcome is Outcome.PAUSED and live.widens_to is not None:
            self._settling.go_on_wider(live, is_stopping=bool(self._stop_reason))

    def _fill_devices(self, now: Instant) -> None:
        self._leasing.look(now.monotonic_s)
        self._grant_devices(now)
        if self._widening is not None and self._may_start(now):
            if self._leasing.settle_for_less():
                self._grant_devices(now)
            if self._widening.is_due(now) and self._has_nothing_to_start(now):
                spent = self._spending.spent(now)
                self._widening.heed(now, self._live.values(), self._spending.budget, spent)
        self._launch_intended(self._clock.now())
        self._leave_to_wider(self._leasing.unplaceable())
        for note in self._leasing.notes:
            self._say(note)
        self._leasing.notes.clear()

    def _leave_to_wider(self, candidates: Sequence[Candidate]) -> None:
        """Trials that can never run here wait for whoever has enough devices."""
        for candidate in candidates:
            self._search.put_back(candidate.asked.trial_id)
        if candidates:
            numbers = [candidate.asked.number for candidate in candidates]
            self._say(self._stranding.told_too_wide(numbers))

    def _grant_devices(self, now: Instant) -> None:
        while self._leasing.may_have_room and self._may_start(now):
            grant = self._leasing.next(partial(self._asking.now, now))
            if grant is None:
                break
            # Not at the beginning of the round: asking took its time, in which it held nothing.
            self._intend(self._clock.now(), grant)

    def _may_start(self, now: Instant) -> bool:
        # What was ended for a wider attempt would else have gone on, whatever the budget.
        is_owed = self._widening is not None and self._leasing.owes_devices
        is_over = bool(self._why_no_more(now, is_new_trial=False))
        if self._orders.paused_by or self._stop_reason or (is_over and not is_owed):
            return False
        return self._room.is_there(now.monotonic_s)

    def _has_nothing_to_start(self, now: Instant) -> bool:
        is_asked = self._asking.found_nothing and not self._leasing.n_waiting
        return is_asked and bool(self._why_no_more(now, is_new_trial=True))

    def _intend(self, now: Instant, grant: Grant) -> None:
        live = self._launching.intend(now, grant)
        self._live[live.attempt.id] = live
        self._intended.append(live)

    def _launch_intended(self, now: Instant) -> None:
        if self._intended:
            self._record(now, must=True)
        while self._intended:
            live = self._intended.pop(0)
            ending = self._launching.launch(now, live)
            if ending is not None:
                self._conclude(now, live, ending)
                continue
            self._usage.has_changed = True
            started = Started(attempt=live.attempt, devices=live.labels, params=live.params)
            self._telling.add(started)

    # -- ends of the study -------------------------------------------------------------------

    def _why_no_more(self, now: Instant, *, is_new_trial: bool) -> str:
        """Why no further trial starts; empty while one may."""
        if self._stop_reason:
            return self._stop_reason
        if is_new_trial and self._search.is_exhausted:
            return self._search.why_exhausted
        reached = self._spending.why_no_more(now, is_new_trial=is_new_trial)
        return f"budget reached: {reached}" if reached else ""

    def _is_done(self) -> bool:
        if self._live:
            return False
        is_new_trial = self._leasing.n_waiting == 0
        now = self._clock.now()
        self._end_reason = self._why_no_more(now, is_new_trial=is_new_trial)
        if self._orders.paused_by and not self._end_reason:
            return False
        if self._outage.is_on:
            # Who else works on the study, and whether a trial waits, is not known.
            return bool(self._stop_reason)
        if not self._end_reason and self._leasing.is_stuck:
            left = "Too few devices" if self._leasing.pool.devices else "No device"
            error = DeviceError(
                f"{left} of the study is left for a trial; the rest is lost. "
                "Nothing more can run here."
            )
            error.exit_code = EXIT_STUDY_FAILED
            self._put_back_waiting()
            self._recorder.commit()
            raise error
        if not self._end_reason:
            return self._has_stranded(now)
        if self._why_no_more(now, is_new_trial=False):
            return True
        must_wait = True
        with self._outage.watch(now):
            must_wait = self._others.must_be_waited_for(now)
        # The next round takes it up: what the others have done may be known since just now.
        return not must_wait and not self._search.lacks_a_winner

    def _has_stranded(self, now: Instant) -> bool:
        """Whether only trials are left that no dispatcher of the study has enough devices for."""
        is_idle = self._asking.found_nothing and not self._leasing.n_waiting
        with self._outage.watch(now):
            if self._stranding.look(now, is_idle=is_idle and not self._room.is_awaited):
                self._end_reason = self._stranding.reason
        return bool(self._end_reason)

    def _result(self) -> Result:
        counts = self._search.count()
        return Result(
            is_interrupted=bool(self._stop_reason) and self._stop_reason != _HOPELESS,
            is_hopeless=self._stop_reason == _HOPELESS
            or bool(self._search.study.guard.why_given_up),
            is_stranded=bool(self._stranding.reason),
            reason=self._end_reason,
            n_completed=counts[TrialState.COMPLETE],
            n_pruned=counts[TrialState.PRUNED] - self._search.n_infeasible,
            n_failed=counts[TrialState.FAIL] + self._search.n_infeasible,
            n_paused=self._search.n_paused,
        )

    # -- a database whose file is lost -------------------------------------------------------

    def _look_for_file(self, now: Instant) -> bool:
        """Ends the study where its database file is not there any more; whether it is so."""
        told = self._rescue.look(now)
        if told and self._stop_reason:
            self._say(told)
        elif told:
            self._stop(now, "database file lost", told)
        return bool(told)

    # -- a database that does not answer -----------------------------------------------------

    def _recovers(self, now: Instant) -> bool:
        """Writes all that waited, where the database answers again."""
        if not self._outage.may_be_over(now):
            return False
        self._recorder.commit()
        in_hand = [live.attempt.trial_id for live in self._live.values()]
        waiting = [each.asked.trial_id for each in self._leasing.waiting]
        self._recorder.give_up_all_but(in_hand + waiting)
        self._outage.end(now)
        return True

    def _leave_to_others(self, now: Instant) -> None:
        """Lets trials save and end before other dispatchers start further attempts of them.

        The others take this dispatcher for dead, and may share its folder of checkpoints.
        """
        if self._outage.lasts_s(now) < _CUT_OFF_AFTER_S or not self._others.places:
            return
        left = [live for live in self._live.values() if live.may_be_told]
        if left:
            self._say(
                f"Not connected to the database for {self._outage.lasts_s(now):.0f} s: other "
                f"dispatchers ({', '.join(self._others.places)}) take over the trials of this one. "
                f"{len(left)} running trials are asked to save and end."
            )
        for live in left:
            reason = "The database was away, and other dispatchers take over."
            self._stopping.tell(live, now, reason=reason)

    def _write_the_rest(self, events: Events) -> None:
        """The last commit. A user who wants an end waits for the database a while at most."""
        give_up_at_s = self._clock.now().monotonic_s + _LAST_WAIT_S
        while True:
            now = self._clock.now()
            if self._rescue.is_due(now):
                self._look_for_file(now)
            if self._rescue.is_cut_off:
                break
            with self._outage.watch(now):
                if not self._outage.is_on or self._outage.may_be_over(now):
                    self._commit(now)
                    self._outage.end(now)
            if not self._outage.is_on:
                break
            self._outage.tell(now)
            self._tell_people(now)
            is_told = any(isinstance(each, SignalReceived) for each in events.drain(_TICK_S))
            if is_told or (self._stop_reason and now.monotonic_s >= give_up_at_s):
                raise self._outage.give_up(self._search.unsaved())
        self._tell_people(self._clock.now(), is_last=True)

    def _commit(self, now: Instant) -> None:
        try:
            self._recorder.commit()
        except StoreError:
            if not self._look_for_file(now):
                raise
            self._recorder.commit()

    # -- records -----------------------------------------------------------------------------

    def _beat(self, now: Instant) -> None:
        if now.monotonic_s - self._beat_at_s >= _BEAT_EVERY_S:
            self._beat_at_s = now.monotonic_s
            self._recorder.beat(now.utc, self._leasing.devices)

    def _record(self, now: Instant, *, must: bool = False) -> None:
        is_due = now.monotonic_s - self._committed_at_s >= self._terms.commit_every_s
        # What people are told must be in the database first.
        if must or is_due or self._telling.has_news:
            self._recorder.commit()
            self._committed_at_s = now.monotonic_s

    def _tell_people(self, now: Instant, *, is_last: bool = False) -> None:
        take = partial(self._take_snapshot, now)
        # What is not in the database yet is told once it is.
        self._telling.tell(
            now.monotonic_s, take, is_written=not self._outage.is_on, is_last=is_last
        )

    def _take_snapshot(self, now: Instant) -> Snapshot:
        return take_snapshot(
            self._search,
            tuple(self._live.values()),
            self._leasing,
            budget=self._spending.budget,
            spent=self._spending.spent(now),
            now=now,
            started_at_s=self._started_at.monotonic_s,
            is_stopping=bool(self._stop_reason),
            store=StoreState(
                lag_s=now.monotonic_s - self._committed_at_s,
                n_unsaved_reports=self._recorder.n_waiting_reports,
            ),
            idle=self._usage.causes,
        )

    def _patience_s(self) -> float:
        """How long to wait for news."""
        return _CLEARING_TICK_S if self._clearing else _TICK_S


def _begun_at(
    folders: TrialFolders, recorder: Recorder, number: int, trial_id: int
) -> datetime | None:
    return folders.begun_at(number, partial(recorder.begun_at, trial_id))
