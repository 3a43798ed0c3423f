"""The loop that asks, leases, launches, reads reports, decides and records.

One thread owns all state. `tick` is a list of short steps, none of which waits; time comes in as
an argument. Ending an attempt is a state with a deadline: told to stop, then SIGTERM, then SIGKILL.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import assert_never

from optuna.trial import TrialState

from search_spaces import ParamValue
from tuner import messages
from tuner.attempt import (
    Attempt,
    AttemptId,
    AttemptState,
    Cause,
    Ending,
    Outcome,
    advance,
)
from tuner.budget import Spent
from tuner.clock import Clock, Instant
from tuner.devices.device import Device
from tuner.devices.pool import DevicePool
from tuner.devices.watch import Baselines, DeviceWatch
from tuner.errors import EXIT_STUDY_FAILED, DeviceError, LaunchError
from tuner.launch.diagnosis import count_oom_kills, last_lines, readable
from tuner.launch.inbox import Event, Received, SignalReceived, SourceId, WorkerExited
from tuner.launch.plan import TrialPlan
from tuner.launch.protocols import Channel, Events, Launcher
from tuner.live import LiveAttempt, Step, ending_of
from tuner.messages import Action
from tuner.notices import Ended, Notice, Said, Started, View
from tuner.search.study import AskedTrial, StudySearch
from tuner.snapshot import take_snapshot
from tuner.store.record import Recorder
from tuner.terms import Result, Terms

_TICK_S = 0.25
#: While a GPU's memory is awaited it is looked at this often.
_CLEARING_TICK_S = 0.05
#: Reports wait at most this long for the database; a crash loses no more of them.
_COMMIT_EVERY_S = 0.5
_BEAT_EVERY_S = 10.0
_CLEARING_NOTE_AFTER_S = 30.0


class Dispatcher:
    """Runs one study on the devices of one host.

    Args:
        search: The study: what to try, what to give up.
        recorder: Where everything that happens is written.
        launcher: Starts and ends workers.
        channel: Where workers report.
        pool: The devices.
        watch: Looks whether they are free again.
        plan: What all attempts share.
        terms: Budget and time limits.
        view: Who watches.
        clock: The time.
    """

    def __init__(
        self,
        *,
        search: StudySearch,
        recorder: Recorder,
        launcher: Launcher,
        channel: Channel,
        pool: DevicePool,
        watch: DeviceWatch,
        plan: TrialPlan,
        terms: Terms,
        view: View,
        clock: Clock,
    ) -> None:
        self._search = search
        self._recorder = recorder
        self._launcher = launcher
        self._channel = channel
        self._pool = pool
        self._watch = watch
        self._plan = plan
        self._terms = terms
        self._view = view
        self._clock = clock
        self._live: dict[AttemptId, LiveAttempt] = {}
        self._retries: deque[AskedTrial] = deque()
        self._notices: list[Notice] = []
        self._n_signals = 0
        self._device_s = recorder.past.device_s
        self._started_at = clock.now()
        start_s = self._started_at.monotonic_s
        self._committed_at_s = self._beat_at_s = self._shown_at_s = start_s
        self._end_reason = ""

    def run(self, events: Events) -> Result:
        """Works until the budget is reached or the user ends it, and every attempt is over."""
        happened: Sequence[Event] = ()
        while True:
            self.tick(self._clock.now(), happened)
            if self._is_done():
                break
            happened = events.drain(self._patience_s())
        self._put_retries_back()
        self._recorder.end(self._clock.now().utc)
        self._recorder.commit()
        return self._result()

    def tick(self, now: Instant, happened: Iterable[Event]) -> None:
        """One round: hear what happened, act on it, write it down, show it."""
        self._hear(now, happened)
        self._enforce_deadlines(now)
        self._release_cleared_devices(now)
        self._fill_devices(now)
        self._beat(now)
        self._record(now)
        self._tell_people(now)

    # -- hearing -----------------------------------------------------------------------------

    def _hear(self, now: Instant, happened: Iterable[Event]) -> None:
        for event in happened:
            match event:
                case Received():
                    self._hear_message(now, event.source, event.message)
                case WorkerExited():
                    self._hear(now, self._channel.read_rest(event.attempt_id))
                    self._reap(now, event)
                case SignalReceived():
                    self._interrupt(now)
                case _:
                    assert_never(event)

    def _hear_message(self, now: Instant, source: SourceId, message: messages.FromWorker) -> None:
        live = self._live.get(message.attempt_id)
        if live is None or live.attempt.state is AttemptState.CLEARING:
            return  # It speaks for an attempt that is over.
        match message:
            case messages.Hello():
                self._hear_hello(now, live, source, message)
            case messages.Report():
                self._hear_report(live, source, message)
            case messages.Suggest():
                self._channel.send(source, self._suggested(live, message))
            case messages.SetAttribute():
                self._search.set_attribute(live.attempt.trial_id, message.key, message.value)
            case messages.SetConstraint():
                self._search.set_constraint(live.attempt.trial_id, message.key, message.value)
            case messages.Finished():
                live.finished = message
                self._expect_exit(live, now)
            case _:
                assert_never(message)

    def _hear_hello(
        self, now: Instant, live: LiveAttempt, source: SourceId, hello: messages.Hello
    ) -> None:
        if not hello.is_worker:
            # A script below the worker; the worker's own came with its launch.
            devices = live.lease.devices
            self._channel.send(source, self._plan.assign(live.attempt, devices, live.params))
        if live.told is Action.STOP:
            self._channel.send(source, self._verdict(live, step=-1))
        if hello.is_worker and live.attempt.state is AttemptState.LEASED:
            self._move(live, AttemptState.RUNNING, now)
            live.deadline_s = None
            if self._terms.timeout_s is not None:
                live.wait_for(Step.TIME_OUT, now.monotonic_s + self._terms.timeout_s)

    def _hear_report(self, live: LiveAttempt, source: SourceId, report: messages.Report) -> None:
        trial_id = live.attempt.trial_id
        if live.attempt.number > 1 and live.last_step is None:
            self._search.forget_curve_from(trial_id, report.step)
        live.last_step, live.last_values = report.step, report.values
        if live.told is not Action.STOP:
            decision = self._search.report(trial_id, report.step, report.values)
            live.told, live.told_reason = decision.action, decision.reason
        self._channel.send(source, self._verdict(live, report.step))
        extra = report.metrics if len(report.values) == 1 else {**report.values, **report.metrics}
        if extra:
            self._recorder.metrics(live.attempt.id, report.step, extra)

    def _suggested(self, live: LiveAttempt, asked: messages.Suggest) -> messages.Suggested:
        try:
            value = self._search.suggest(live.attempt.trial_id, asked.name, asked.distribution)
        except (ValueError, KeyError, TypeError) as error:
            return messages.Suggested(attempt_id=live.attempt.id, name=asked.name, error=str(error))
        return messages.Suggested(attempt_id=live.attempt.id, name=asked.name, value=value)

    def _verdict(self, live: LiveAttempt, step: int) -> messages.Verdict:
        return messages.Verdict(
            attempt_id=live.attempt.id, step=step, action=live.told, reason=live.told_reason
        )

    # -- endings -----------------------------------------------------------------------------

    def _reap(self, now: Instant, exited: WorkerExited) -> None:
        """A worker is gone: its trial has an ending, its devices are awaited."""
        live = self._live[exited.attempt_id]
        self._channel.dismiss(exited.attempt_id)
        output = last_lines(self._log_of(live.attempt))
        n_oom_kills = count_oom_kills() if exited.exit_code < 0 else live.n_oom_kills
        ending = ending_of(
            live,
            exited.exit_code,
            objectives=self._search.objectives,
            output=output,
            n_oom_kills=n_oom_kills,
        )
        self._conclude(now, live, ending)

    def _conclude(self, now: Instant, live: LiveAttempt, ending: Ending) -> None:
        live.deadline_s = None
        ending = replace(ending, detail=readable(ending.detail))
        live.attempt = replace(live.attempt, ending=ending)
        params = self._search.params_of(live.attempt.trial_id)
        before = self._search.best
        will_retry = self._settle_trial(live, ending)
        self._move(live, AttemptState.CLEARING, now, params=params)
        self._notices.append(
            Ended(
                attempt=live.attempt,
                ending=ending,
                is_best=self._search.best is not before,
                will_retry=will_retry,
                log_path=str(self._log_of(live.attempt)),
            )
        )

    def _settle_trial(self, live: LiveAttempt, ending: Ending) -> bool:
        """Tells the study; gives whether the trial gets one more attempt."""
        attempt = live.attempt
        match ending.outcome:
            case Outcome.COMPLETED:
                self._search.complete(attempt.trial_id, ending.values)
            case Outcome.PRUNED:
                self._search.prune(attempt.trial_id)
            case Outcome.CANCELLED | Outcome.LOST | Outcome.PAUSED:
                self._search.put_back(attempt.trial_id)
            case (
                Outcome.FAILED | Outcome.OUT_OF_MEMORY | Outcome.TIMED_OUT | Outcome.FAILED_TO_START
            ):
                if self._may_retry(attempt, ending):
                    self._retries.append(self._search.again(attempt.trial_id))
                    return True
                self._search.fail(attempt.trial_id)
            case _:
                assert_never(ending.outcome)
        return False

    def _may_retry(self, attempt: Attempt, ending: Ending) -> bool:
        # One that ran out of its time would do so again.
        if ending.outcome is Outcome.TIMED_OUT or self._n_signals:
            return False
        return attempt.number <= self._terms.retries

    def _expect_exit(self, live: LiveAttempt, now: Instant) -> None:
        """The program said its last word; its process must not keep the device for long."""
        live.wait_for(Step.TERMINATE, now.monotonic_s + self._terms.stop_grace_s)

    # -- stopping ----------------------------------------------------------------------------

    def _interrupt(self, now: Instant) -> None:
        """Ctrl-C: once lets trials end or save, twice kills."""
        self._n_signals += 1
        self._end_reason = "interrupted"
        if self._n_signals == 1:
            self._notices.append(
                Said(
                    text="Stopping: no trial starts any more; those that run have "
                    f"{self._terms.stop_grace_s:g} s to end or save. Ctrl-C again kills them."
                )
            )
            self._put_retries_back()
        for live in self._live.values():
            if live.attempt.state is AttemptState.CLEARING:
                continue
            self._tell_to_stop(live, now)
            if self._n_signals > 1:
                self._launcher.kill(live.attempt.id)

    def _put_retries_back(self) -> None:
        """They wait for a later start."""
        while self._retries:
            self._search.put_back(self._retries.popleft().trial_id)

    def _tell_to_stop(self, live: LiveAttempt, now: Instant) -> None:
        # One that ends already, by itself or for its timeout, keeps its reason and its deadline.
        if live.stop_cause is None and live.finished is None:
            live.stop_cause = Cause.INTERRUPTED
            live.told, live.told_reason = Action.STOP, "The study was stopped."
            self._channel.broadcast(live.attempt.id, self._verdict(live, step=-1))
            live.wait_for(Step.TERMINATE, now.monotonic_s + self._terms.stop_grace_s)
        if live.attempt.state is not AttemptState.STOPPING:
            self._move(live, AttemptState.STOPPING, now)

    def _enforce_deadlines(self, now: Instant) -> None:
        for live in list(self._live.values()):
            if live.deadline_s is not None and now.monotonic_s >= live.deadline_s:
                self._enforce(live, now)

    def _enforce(self, live: LiveAttempt, now: Instant) -> None:
        if live.deadline_step is Step.KILL:
            live.deadline_s = None
            self._launcher.kill(live.attempt.id)
            return
        if live.deadline_step is Step.TIME_OUT:
            is_started = live.attempt.started_at is not None
            live.stop_cause = Cause.TIMEOUT if is_started else Cause.LAUNCH
            limit_s = self._terms.timeout_s if is_started else self._terms.launch_timeout_s
            what = "It did not end" if is_started else "Its process did not say hello"
            live.told_reason = f"{what} within {limit_s:g} s."
        if live.attempt.state is not AttemptState.STOPPING:
            self._move(live, AttemptState.STOPPING, now)
        self._launcher.terminate(live.attempt.id)
        live.wait_for(Step.KILL, now.monotonic_s + self._terms.stop_grace_s)

    # -- devices -----------------------------------------------------------------------------

    def _release_cleared_devices(self, now: Instant) -> None:
        for live in list(self._live.values()):
            if live.attempt.state is AttemptState.CLEARING and self._is_clear(live, now):
                self._finish(live, now)

    def _is_clear(self, live: LiveAttempt, now: Instant) -> bool:
        pids = frozenset({live.attempt.pid} if live.attempt.pid else ())
        unclear = self._watch.find_unclear(live.lease.devices, live.baselines, pids)
        self._withdraw_lost_devices()
        if unclear is not None:
            self._note_wait(live, unclear, now)
        return unclear is None

    def _note_wait(self, live: LiveAttempt, device: Device, now: Instant) -> None:
        ended_at = live.attempt.ended_at
        waited_s = (now.utc - ended_at).total_seconds() if ended_at else 0.0
        if waited_s > _CLEARING_NOTE_AFTER_S and not live.is_wait_noted:
            live.is_wait_noted = True
            self._notices.append(
                Said(
                    text=f"{device.label} waits: memory of {live.attempt} is not back after "
                    f"{waited_s:.0f} s. `nvidia-smi` shows which process holds it."
                )
            )

    def _withdraw_lost_devices(self) -> None:
        for device in self._pool.devices:
            if device.id in self._watch.lost:
                self._pool.withdraw(device)
                reason = self._watch.lost[device.id]
                self._notices.append(Said(text=f"{reason} It gets no more trials."))

    def _finish(self, live: LiveAttempt, now: Instant) -> None:
        self._move(live, AttemptState.FINISHED, now)
        self._device_s += self._held_s(live, now)
        self._pool.release(live.lease)
        del self._live[live.attempt.id]

    def _fill_devices(self, now: Instant) -> None:
        while self._pool.free and not self._why_no_more(now):
            baselines = self._watch.baselines(self._pool.free[:1])
            if baselines is None:
                self._withdraw_lost_devices()
                continue
            asked = self._retries.popleft() if self._retries else self._search.ask()
            self._start(now, asked, baselines)

    def _start(self, now: Instant, asked: AskedTrial, baselines: Baselines) -> None:
        """Leases, writes the intent down, and only then launches."""
        number = 1 if asked.is_new else self._recorder.attempts_of(asked.trial_id) + 1
        attempt = Attempt(
            trial_id=asked.trial_id,
            trial_number=asked.number,
            number=number,
            seed=self._plan.seed_of(asked.number, number),
            leased_at=now.utc,
        )
        lease = self._pool.lease(1, attempt.id)
        assert lease is not None, "_fill_devices saw a free device"
        live = LiveAttempt(
            attempt=attempt,
            lease=lease,
            params=asked.params,
            baselines=baselines,
            leased_at_s=now.monotonic_s,
            n_oom_kills=count_oom_kills(),
        )
        live.wait_for(Step.TIME_OUT, now.monotonic_s + self._terms.launch_timeout_s)
        self._live[attempt.id] = live
        log = self._log_of(attempt)
        self._recorder.lease(attempt, lease.devices, params=asked.params, log_path=str(log))
        self._record(now, must=True)
        self._launch(now, live, log)

    def _launch(self, now: Instant, live: LiveAttempt, log: Path) -> None:
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            token = self._channel.expect(live.attempt.id)
            request = self._plan.request(
                live.attempt,
                live.lease.devices,
                live.params,
                address=self._channel.address,
                token=token,
            )
            pid = self._launcher.launch(request)
        except (LaunchError, OSError) as error:
            self._channel.dismiss(live.attempt.id)
            self._conclude(
                now,
                live,
                Ending(outcome=Outcome.FAILED_TO_START, cause=Cause.LAUNCH, detail=str(error)),
            )
            return
        live.attempt = replace(live.attempt, pid=pid)
        self._notices.append(Started(attempt=live.attempt, devices=live.labels, params=live.params))

    # -- ends of the study -------------------------------------------------------------------

    def _why_no_more(self, now: Instant) -> str:
        """Why no further trial starts; empty while one may."""
        if self._n_signals:
            return "interrupted"
        is_new_trial = not self._retries
        if is_new_trial and self._search.is_exhausted:
            return "every configuration of the space was tried"
        reached = self._terms.budget.reached(self._spent(now), is_new_trial=is_new_trial)
        return f"budget reached: {reached}" if reached else ""

    def _is_done(self) -> bool:
        if self._live:
            return False
        now = self._clock.now()
        self._end_reason = self._why_no_more(now)
        if not self._end_reason and not self._pool.free:
            error = DeviceError("Every device of the study is lost. Nothing more can run here.")
            error.exit_code = EXIT_STUDY_FAILED
            raise error
        return bool(self._end_reason)

    def _spent(self, now: Instant) -> Spent:
        counts = self._search.count()
        held_s = sum(self._held_s(live, now) for live in self._live.values())
        return Spent(
            trials=sum(counts.values()) - counts[TrialState.WAITING],
            time_s=self._recorder.past.time_s + now.monotonic_s - self._started_at.monotonic_s,
            device_s=self._device_s + held_s,
        )

    def _held_s(self, live: LiveAttempt, now: Instant) -> float:
        return (now.monotonic_s - live.leased_at_s) * len(live.lease.devices)

    def _result(self) -> Result:
        counts = self._search.count()
        return Result(
            is_interrupted=self._n_signals > 0,
            reason=self._end_reason,
            n_completed=counts[TrialState.COMPLETE],
            n_pruned=counts[TrialState.PRUNED],
            n_failed=counts[TrialState.FAIL],
        )

    # -- records -----------------------------------------------------------------------------

    def _move(
        self,
        live: LiveAttempt,
        to: AttemptState,
        now: Instant,
        params: Mapping[str, ParamValue] | None = None,
    ) -> None:
        live.attempt = advance(live.attempt, to, at=now.utc)
        self._recorder.moved(live.attempt, at=now.utc, params=params)

    def _beat(self, now: Instant) -> None:
        if now.monotonic_s - self._beat_at_s >= _BEAT_EVERY_S:
            self._beat_at_s = now.monotonic_s
            self._recorder.beat(now.utc)

    def _record(self, now: Instant, *, must: bool = False) -> None:
        is_due = now.monotonic_s - self._committed_at_s >= _COMMIT_EVERY_S
        # What people are told must be in the database first.
        if must or is_due or self._notices:
            self._recorder.commit()
            self._committed_at_s = now.monotonic_s

    def _tell_people(self, now: Instant) -> None:
        for notice in self._notices:
            self._view.show(notice)
        if self._notices or now.monotonic_s - self._shown_at_s >= _TICK_S:
            self._shown_at_s = now.monotonic_s
            snapshot = take_snapshot(
                self._search,
                tuple(self._live.values()),
                self._pool,
                budget=self._terms.budget,
                spent=self._spent(now),
                now=now,
                started_at_s=self._started_at.monotonic_s,
                is_stopping=self._n_signals > 0,
            )
            self._view.refresh(snapshot)
        self._notices.clear()

    def _log_of(self, attempt: Attempt) -> Path:
        return self._plan.files.log(attempt.trial_number, attempt.number)

    def _patience_s(self) -> float:
        """How long to wait for news."""
        states = {live.attempt.state for live in self._live.values()}
        return _CLEARING_TICK_S if AttemptState.CLEARING in states else _TICK_S
