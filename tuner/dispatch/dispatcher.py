"""The dispatcher's loop: reads events, starts trials, and records and shows what happened.

One thread owns all state. `tick` is a list of short steps, none of which blocks; time is an
argument. `parts` builds what the steps call.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import assert_never

from tuner.dispatch.attempts.live_attempt import LiveAttempt
from tuner.dispatch.attempts.transitions import move
from tuner.dispatch.notices import Snapshot
from tuner.dispatch.object_store.store import ObjectStore
from tuner.dispatch.parts import DispatcherParts, DispatcherSetup, prepare_search
from tuner.dispatch.snapshot import StoreState, take_snapshot
from tuner.dispatch.terms import Result
from tuner.dispatch.upkeep.checkpoint_sweeper import SweepThread
from tuner.dispatch.upkeep.idle_log import StudyFacts
from tuner.dispatch.upkeep.record_writer import BEAT_EVERY_S
from tuner.domain.attempt import AttemptState, Outcome
from tuner.domain.messages import TerminationRequested
from tuner.errors import StoreError
from tuner.host.clock import Instant
from tuner.launch.inbox import Event, Received, SignalReceived, WorkerExited
from tuner.launch.protocols import Events
from tuner.store.connection.transactions import Unavailable
from tuner.store.records.dispatchers.silence import STALE_AFTER_S

_log = logging.getLogger(__name__)

_TICK_S = 0.25
#: Interval in seconds at which a GPU is checked while its memory is being freed, and claims while
#: the study has no device.
_CLEARING_TICK_S = 0.05
#: Length of a database outage in seconds after which trials are saved: other dispatchers take
#: trials over one minute after this dispatcher's last heartbeat.
_CUT_OFF_AFTER_S = STALE_AFTER_S - BEAT_EVERY_S


class Dispatcher:
    """Runs one study on the devices of one host.

    Args:
        setup: The objects that it works with.
    """

    def __init__(self, setup: DispatcherSetup) -> None:
        prepare_search(setup)
        self._search = setup.search
        self._recorder = setup.recorder
        self._channel = setup.channel
        self._leasing = setup.leasing
        self._clock = setup.clock
        self._activity = setup.activity
        self._housekeeping = setup.housekeeping
        self._saving = setup.saving
        self._objects = setup.objects
        self._stop_grace_s = setup.terms.stop_grace_s
        parts = DispatcherParts(setup)
        self._started_at = parts.started_at
        self._live = parts.attempts
        self._telling = parts.telling
        self._say = parts.telling.say
        self._clearing = parts.clearing
        self._room = parts.room
        self._others = parts.others
        self._usage = parts.usage
        self._allocation = parts.allocation
        self._spending = parts.spending
        self._outage = parts.outage
        self._rescue = parts.rescue
        self._talk = parts.talk
        self._stopping = parts.stopping
        self._settling = parts.settling
        self._end = parts.end
        self._asking = parts.asking
        self._orders = parts.orders
        self._conclusion = parts.conclusion
        self._early_stop = parts.early_stop
        self._filling = parts.filling
        self._loans = parts.loans
        self._commands = parts.commands
        self._writer = parts.writer

    @property
    def device_s(self) -> float:
        """Device-seconds held by attempts of this start; each device counts separately."""
        return self._spending.device_s

    def run(self, events: Events) -> Result:
        """Runs until the budget is reached or the user stops it, and all attempts have ended.

        Raises:
            StoreError: If the database refuses a write, or does not answer at the end and the user
                stops waiting for it.
            DeviceError: If no device is left.
        """
        happened: Sequence[Event] = ()
        while True:
            self.tick(self._clock.now(), happened)
            if self._is_done():
                break
            happened = events.drain(self._patience_s())
        self._end.put_back_waiting()
        if self._objects is not None:
            self._end.put_back(self._objects.restores.take_all())
        if not self._end.leaves_paused_trials:
            self._search.end_paused()
        if self._saving is not None:
            self._saving.finish()
        self._end.judge_allocation(self._clock.now())
        if self._objects is not None:
            self._finish_uploads(self._objects, events)
        self._usage.hand_over()
        self._recorder.end(self._clock.now().utc, self._end.reason)
        self._writer.write_last(events, self._show)
        self._show(self._clock.now(), is_last=True)
        self._early_stop.look_for_file(self._clock.now())
        self._rescue.end()
        return self._end.result()

    def _finish_uploads(self, objects: ObjectStore, events: Events) -> None:
        """Finishes uploads. Heartbeats continue: other dispatchers may wait for an upload."""

        def is_told_to_end(patience_s: float) -> bool:
            happened = events.drain(patience_s)
            now = self._clock.now()
            with suppress(Unavailable):
                self._writer.beat(now)
                self._writer.write_due(now)
            return any(isinstance(event, SignalReceived) for event in happened)

        with suppress(Unavailable):
            self._writer.write(self._clock.now())
        grace_s = self._stop_grace_s if self._end.is_stopping else None
        for note in objects.finish(grace_s, is_told_to_end):
            self._say(note)

    def keep_house(self) -> None:
        """Removes the checkpoints that the study does not keep; called after `run`."""
        if self._housekeeping is None:
            return
        self._housekeeping.finish()
        self._forget_removed(self._housekeeping)
        try:
            self._recorder.write_removals()
        except StoreError as error:
            # The study is over and well; only what `tuner why` shows of files is out of date.
            _log.warning("Removed checkpoints were not recorded in the database: %s", error)

    def tick(self, now: Instant, happened: Iterable[Event]) -> None:
        """One iteration: reads events, acts on them, writes records, shows progress."""
        self._handle(now, happened)
        self._allocation.note(now, is_busy=bool(self._live))
        self._early_stop.look_at_deadline(now)
        self._stopping.enforce_deadlines(list(self._live.values()), now)
        for live in self._clearing.clear(now):
            self._finish(live, now)
        if self._loans is not None:
            self._loans.poll(now, self._live.values(), partial(self._filling.n_startable, now))
        if self._rescue.is_due(now):
            self._early_stop.look_for_file(now)
        try:
            with self._outage.watch(now):
                self._use_database(now)
        except StoreError:
            # Of another file, perhaps, which is at the path by now.
            if not self._early_stop.look_for_file(now):
                raise
        self._leave_to_others(now)
        self._note_use(now)
        self._outage.tell(now)
        self._show(now)

    # -- events ------------------------------------------------------------------------------

    def _handle(self, now: Instant, happened: Iterable[Event]) -> None:
        for event in happened:
            match event:
                case Received(source=source, message=message):
                    live = self._live.get(message.attempt_id)
                    # Else it speaks for an attempt that is over.
                    if live is None or live.attempt.state is AttemptState.CLEARING:
                        continue
                    if isinstance(message, TerminationRequested):
                        self._stopping.request_end(live, now)
                    else:
                        self._talk.handle(now, live, source, message)
                case WorkerExited():
                    self._handle(now, self._channel.read_rest(event.attempt_id))
                    if ended := self._conclusion.note_exit(now, event):
                        self._early_stop.conclude(now, *ended)
                case SignalReceived():
                    self._early_stop.signalled(now, event.number)
                case _:
                    assert_never(event)

    def _note_in_allocation(self, live: LiveAttempt, now: Instant) -> None:
        lasted_s = now.monotonic_s - live.leased_at_s
        if live.outcome is Outcome.COMPLETED:
            self._allocation.ended(lasted_s)
        elif live.outcome is Outcome.CANCELLED:
            has_files = self._settling.has_files(live.attempt.trial_number)
            self._allocation.cut(lasted_s, has_files=has_files)
        elif live.outcome in (Outcome.PRUNED, Outcome.PAUSED):
            self._allocation.cut(lasted_s, has_files=True)

    def _finish(self, live: LiveAttempt, now: Instant) -> None:
        """Finishes an attempt whose devices are free."""
        move(self._recorder, live, AttemptState.FINISHED, now)
        self._asking.ended(now.monotonic_s - live.leased_at_s)
        self._note_in_allocation(live, now)
        self._spending.ended(live, now)
        self._leasing.release(live.grant)
        self._usage.has_changed = True
        if self._activity is not None:
            self._activity.forget(live.attempt.id)
        if self._saving is not None:
            self._saving.over(live.attempt)
        self._live.remove(live)
        if live.outcome is Outcome.PAUSED and live.widens_to is not None:
            self._settling.go_on_wider(live, is_stopping=self._end.is_stopping)

    # -- the database ------------------------------------------------------------------------

    def _use_database(self, now: Instant) -> None:
        if self._outage.is_on and not self._writer.recover(now, self._trials_at_work()):
            return
        self._commands.poll(now)
        self._others.poll(now)
        self._filling.fill(now, self._writer.write)
        self._writer.beat(now)
        self._usage.poll(now)
        self._writer.write_due(now)
        if self._housekeeping is not None:
            for note in self._housekeeping.poll(now):
                self._say(note)
            self._forget_removed(self._housekeeping)
        if self._saving is not None:
            self._saving.poll(now, lambda: (live.attempt for live in self._live.values()))
        if self._objects is not None:
            for note in self._objects.poll(now):
                self._say(note)
        if not self._orders.paused_by and (ahead := self._asking.ahead(now)) is not None:
            self._leasing.put(ahead)

    def _trials_at_work(self) -> list[int]:
        running = [live.attempt.trial_id for live in self._live.values()]
        fetched = [] if self._objects is None else self._objects.restores.trial_ids
        return running + [each.asked.trial_id for each in self._leasing.waiting] + fetched

    def _forget_removed(self, housekeeping: SweepThread) -> None:
        for number in housekeeping.take_removed():
            if self._saving is not None:
                self._saving.forget(number)

    def _leave_to_others(self, now: Instant) -> None:
        """Lets trials save and end before other dispatchers retry them.

        After missed heartbeats the others count this dispatcher as dead; they may share its
        checkpoint folder.
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

    # -- progress ----------------------------------------------------------------------------

    def _is_done(self) -> bool:
        if self._live or self._is_fetching():
            return False
        return self._end.is_reached(
            self._clock.now(),
            found_nothing=self._asking.found_nothing,
            is_paused=bool(self._orders.paused_by),
        )

    def _is_fetching(self) -> bool:
        """Whether a trial will continue here once its checkpoint is fetched."""
        if self._objects is None or not self._objects.restores.trial_ids:
            return False
        return not self._end.why_no_more(self._clock.now(), is_new_trial=False)

    def _note_use(self, now: Instant) -> None:
        idle = self._leasing.supply.idle
        study = self._facts(now) if idle else StudyFacts()
        self._usage.note(now, self._live.values(), idle, study)

    def _facts(self, now: Instant) -> StudyFacts:
        n_waiting = self._leasing.n_waiting
        is_over = bool(self._end.why_no_more(now, is_new_trial=not n_waiting))
        return StudyFacts(
            is_over=is_over or (self._asking.found_nothing and not n_waiting),
            is_paused=bool(self._orders.paused_by),
            is_database_away=self._outage.is_on,
            is_disk_full=self._room.is_awaited,
            is_gathering=self._leasing.is_gathering,
        )

    def _show(self, now: Instant, *, is_last: bool = False) -> None:
        take = partial(self._take_snapshot, now)
        # What is not in the database yet is shown once it is.
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
            is_stopping=self._end.is_stopping,
            store=StoreState(
                lag_s=self._writer.lag_s(now),
                n_unsaved_reports=self._recorder.n_waiting_reports,
            ),
            idle=self._usage.causes,
            share=None if self._loans is None else self._loans.share,
        )

    def _patience_s(self) -> float:
        """Seconds to wait for events."""
        is_awaiting_shares = self._loans is not None and not self._leasing.supply.devices
        return _CLEARING_TICK_S if self._live.clearing or is_awaiting_shares else _TICK_S
