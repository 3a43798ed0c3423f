"""Stops attempts: a verdict first, then SIGTERM, then SIGKILL, each with a deadline."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.dispatch.attempts.live_attempt import LiveAttempt, Step
from tuner.dispatch.attempts.stall_detector import Stalls
from tuner.dispatch.attempts.transitions import move
from tuner.dispatch.attempts.worker_messages import verdict_on
from tuner.dispatch.terms import Terms
from tuner.domain.attempt import AttemptState, Cause
from tuner.domain.messages import ENDS_EARLY, Action
from tuner.host.clock import Instant
from tuner.launch.protocols import Channel, Launcher
from tuner.store.records.recorder import Recorder

#: Causes after which a trial saves and continues later.
_SAVED_FOR = (Cause.INTERRUPTED, Cause.SIGNAL)


class AttemptStop:
    """Stops attempts. Each step has a deadline; none blocks.

    Args:
        recorder: Writes states.
        launcher: Signals processes.
        channel: Sends verdicts to workers.
        terms: Time limits.
        stalls: Detects stalled attempts.
    """

    def __init__(
        self,
        *,
        recorder: Recorder,
        launcher: Launcher,
        channel: Channel,
        terms: Terms,
        stalls: Stalls,
    ) -> None:
        self._recorder = recorder
        self._launcher = launcher
        self._channel = channel
        self._terms = terms
        self._stalls = stalls

    def tell(
        self,
        live: LiveAttempt,
        now: Instant,
        cause: Cause = Cause.INTERRUPTED,
        reason: str = "The study was stopped.",
    ) -> None:
        """Requests that an attempt ends or saves by itself, before it is signalled."""
        if live.widens_to is not None:
            # It must no longer continue.
            live.widens_to, live.stop_cause, live.told_reason = None, cause, reason
        # An attempt that is ending already keeps its reason and its deadline.
        if live.stop_cause is None and live.finished is None:
            live.stop_cause = cause
            live.is_pausing = live.told is Action.PAUSE and cause in _SAVED_FOR
            live.told, live.told_reason = Action.STOP, reason
            self._channel.broadcast(live.attempt.id, verdict_on(live, step=-1))
            live.wait_for(Step.TERMINATE, now.monotonic_s + self._terms.stop_grace_s)
        if live.attempt.state is not AttemptState.STOPPING:
            move(self._recorder, live, AttemptState.STOPPING, now)

    def request_end(self, live: LiveAttempt, now: Instant) -> None:
        """Stops an attempt of which a process received SIGTERM from outside the tuner."""
        is_ending = live.told in ENDS_EARLY or live.stop_cause is not None
        if not is_ending and live.attempt.state is not AttemptState.CLEARING:
            self.tell(live, now, Cause.SIGNAL, "SIGTERM from outside.")

    def request_widening(
        self, live: LiveAttempt, now: Instant, n_devices: int, reason: str
    ) -> None:
        """Requests that an attempt saves and ends, to continue on `n_devices` devices."""
        self.tell(live, now, reason=reason)
        live.widens_to = n_devices

    def request_return(
        self,
        live: LiveAttempt,
        now: Instant,
        reason: str,
        *,
        grace_s: float,
        n_devices: int | None = None,
    ) -> None:
        """Requests that an attempt saves and ends, to return its devices to another user.

        Args:
            live: The attempt.
            now: The current time.
            reason: Shown to the user.
            grace_s: Seconds after which its processes are killed.
            n_devices: Number of devices on which the trial continues at once; None to queue it.
        """
        if live.stop_cause is None and live.finished is None:
            self.tell(live, now, reason=reason)
            live.widens_to = n_devices
            live.killed_by_s = now.monotonic_s + grace_s
            last_s = min(self._terms.stop_grace_s, grace_s / 2)
            live.wait_for(Step.TERMINATE, live.killed_by_s - last_s)

    def kill(self, live: LiveAttempt, now: Instant) -> None:
        """Kills an attempt at once."""
        self.tell(live, now)
        live.is_signalled = True
        self._launcher.kill(live.attempt.id)

    def enforce_deadlines(self, attempts: Sequence[LiveAttempt], now: Instant) -> None:
        """Enforces deadlines on attempts that stalled, timed out or did not end when requested."""
        for live in self._stalls.find(attempts, now.monotonic_s):
            live.stop_cause = Cause.STALLED
            live.told_reason = (
                f"It reported nothing for {self._stalls.limit_s:g} s, and neither its processes "
                "nor its devices did anything."
            )
            self._terminate(live, now)
        for live in attempts:
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
        self._terminate(live, now)

    def _terminate(self, live: LiveAttempt, now: Instant) -> None:
        live.note_hang(self._terms.stop_grace_s)
        if live.attempt.state is not AttemptState.STOPPING:
            move(self._recorder, live, AttemptState.STOPPING, now)
        live.is_signalled = True
        self._launcher.terminate(live.attempt.id)
        kill_at_s = now.monotonic_s + live.grace_s(self._terms.stop_grace_s)
        if live.killed_by_s is not None:
            kill_at_s = max(now.monotonic_s, min(kill_at_s, live.killed_by_s))
        live.wait_for(Step.KILL, kill_at_s)
