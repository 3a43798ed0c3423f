"""Simulated workers that play recorded curves, on a clock that skips every wait.

They replace processes, sockets and the current time; the dispatcher is unchanged.
"""

from __future__ import annotations

import heapq
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np

from tuner.domain.attempt import AttemptId, Cause, Outcome
from tuner.domain.messages import Action, Finished, FromWorker, Hello, Report, ToWorker, Verdict
from tuner.host.clock import Instant
from tuner.launch.inbox import Event, Received, SourceId, WorkerExited
from tuner.launch.request import LaunchRequest
from tuner.search_spaces import ParamValue
from tuner.simulate.curves import Curve

_BEGIN = datetime(2000, 1, 1, tzinfo=UTC)


class VirtualClock:
    """A clock that moves only when it is set."""

    def __init__(self) -> None:
        self.elapsed_s = 0.0
        self._now = Instant(utc=_BEGIN, monotonic_s=0.0)

    def now(self) -> Instant:
        elapsed_s = self.elapsed_s
        if self._now.monotonic_s != elapsed_s:
            utc = _BEGIN + timedelta(seconds=elapsed_s)
            self._now = Instant(utc=utc, monotonic_s=elapsed_s)
        return self._now


@dataclass(slots=True)
class _Player:
    """One attempt that is played."""

    attempt_id: AttemptId
    trial_number: int
    curve: Curve
    #: Steps that are done, also by earlier attempts.
    done: int
    #: Whether it trains now, so that its next report is of one more step.
    is_ahead: bool = False


@dataclass(frozen=True, slots=True)
class Reported:
    """One report."""

    at_s: float
    value: float


class Players:
    """The launcher, channel and events of a dispatcher, all in memory.

    An attempt takes `restart_s` until its first step begins. A trial saves after each step, and a
    later attempt continues from there.

    Args:
        clock: The dispatcher's clock.
        curve_of: Returns the curve of a configuration.
        objective: Name of the reported objective.
        restart_s: Seconds that an attempt takes before it trains: start, data, compilation.
    """

    address = "memory"

    def __init__(
        self,
        clock: VirtualClock,
        curve_of: Callable[[Mapping[str, ParamValue]], Curve],
        *,
        objective: str,
        restart_s: float,
    ) -> None:
        self._clock = clock
        self._curve_of = curve_of
        self._objective = objective
        self._restart_s = restart_s
        self._coming: list[tuple[float, int, Event]] = []
        self._order = itertools.count()
        self._sources = itertools.count(1)
        self._players: dict[SourceId, _Player] = {}
        #: By trial: its curve, and the number of steps done.
        self._saved: dict[int, tuple[Curve, int]] = {}
        self.reports: list[Reported] = []
        self.n_attempts = 0
        #: Trials that would have continued beyond their recorded curve.
        self.n_cut_short = 0

    # -- launcher ------------------------------------------------------------------------------

    def launch(self, requests: Sequence[LaunchRequest]) -> tuple[int, ...]:
        for request in requests:
            self.n_attempts += 1
            number = request.assign.trial_number
            curve, done = self._saved.get(number) or (self._curve_of(request.assign.params), 0)
            source = SourceId(next(self._sources))
            player = _Player(request.attempt_id, number, curve, done)
            self._players[source] = player
            hello = Hello(attempt_id=request.attempt_id, token="", pid=int(source))
            self._say(0.0, source, hello)
            self._play(source, player, self._restart_s)
        return tuple(os.getpid() for _ in requests)

    def free_port(self) -> int:
        return 0

    def terminate(self, attempt_id: AttemptId) -> None:
        self._end(attempt_id, Outcome.CANCELLED, Cause.INTERRUPTED)

    def kill(self, attempt_id: AttemptId) -> None:
        self._end(attempt_id, Outcome.CANCELLED, Cause.INTERRUPTED)

    # -- channel -------------------------------------------------------------------------------

    def expect(self, attempt_id: AttemptId) -> str:
        return ""

    def send(self, source: SourceId, message: ToWorker) -> None:
        player = self._players.get(source)
        if player is None or not isinstance(message, Verdict):
            return
        if message.action is Action.CONTINUE:
            if player.done < player.curve.n_steps:
                self._play(source, player, 0.0)
            elif player.curve.is_whole:
                values = {self._objective: player.curve.end}
                self._finish(source, player, Outcome.COMPLETED, None, values)
            else:
                self.n_cut_short += 1
                detail = "its recording ends here"
                self._finish(source, player, Outcome.PRUNED, Cause.PRUNER, {}, detail)
            return
        is_stop = message.action is Action.STOP
        outcome = Outcome.CANCELLED if is_stop else Outcome.PRUNED
        cause = Cause.INTERRUPTED if is_stop else Cause.PRUNER
        self._finish(source, player, outcome, cause, {}, message.reason)

    def broadcast(self, attempt_id: AttemptId, message: ToWorker) -> None:
        if isinstance(message, Verdict) and message.action is Action.STOP:
            self._end(attempt_id, Outcome.CANCELLED, Cause.INTERRUPTED)

    def read_rest(self, attempt_id: AttemptId) -> Sequence[Event]:
        return ()

    def dismiss(self, attempt_id: AttemptId) -> None: ...

    def close(self) -> None: ...

    # -- events --------------------------------------------------------------------------------

    def drain(self, timeout_s: float) -> list[Event]:
        """The next events. No other can occur before, so the wait may be longer."""
        if not self._coming:
            self._clock.elapsed_s += timeout_s
            return []
        self._clock.elapsed_s = max(self._clock.elapsed_s, self._coming[0][0])
        happened = []
        while self._coming and self._coming[0][0] <= self._clock.elapsed_s:
            happened.append(heapq.heappop(self._coming)[2])
        return [each for each in happened if self._is_true(each)]

    def _is_true(self, event: Event) -> bool:
        """Whether an event's sender still exists; records its report and checkpoint."""
        if not isinstance(event, Received):
            return True
        player = self._players.get(event.source)
        if isinstance(event.message, Report) and player is not None:
            player.done += player.is_ahead
            player.is_ahead = False
            self._saved[player.trial_number] = (player.curve, player.done)
            value = event.message.values[self._objective]
            self.reports.append(Reported(self._clock.elapsed_s, value))
        return player is not None or isinstance(event.message, Finished)

    def _play(self, source: SourceId, player: _Player, lag_s: float) -> None:
        step, seconds = player.done + 1, player.curve.seconds
        if step > player.curve.n_steps:
            # It was stopped after its last step, and has returned.
            value = float(player.curve.values[-1])
            last = player.curve.step(player.curve.n_steps)
            self._say(lag_s, source, self._report(player.attempt_id, last, value))
            return
        player.is_ahead = True
        before_s = float(seconds[step - 2]) if step > 1 else 0.0
        value = float(player.curve.values[step - 1])
        takes_s = lag_s + float(seconds[step - 1]) - before_s
        report = self._report(player.attempt_id, player.curve.step(step), value)
        self._say(takes_s, source, report)

    def _report(self, attempt_id: AttemptId, step: int, value: float) -> Report:
        return Report(attempt_id=attempt_id, step=step, values={self._objective: value})

    def _end(self, attempt_id: AttemptId, outcome: Outcome, cause: Cause) -> None:
        for source, player in list(self._players.items()):
            if player.attempt_id == attempt_id:
                self._finish(source, player, outcome, cause, {})

    def _finish(
        self,
        source: SourceId,
        player: _Player,
        outcome: Outcome,
        cause: Cause | None,
        values: Mapping[str, float],
        detail: str = "",
    ) -> None:
        del self._players[source]
        attempt_id = player.attempt_id
        said = Finished(
            attempt_id=attempt_id, outcome=outcome, cause=cause, values=values, detail=detail
        )
        self._say(0.0, source, said)
        self._post(0.0, WorkerExited(attempt_id=attempt_id, exit_code=0))

    def _say(self, in_s: float, source: SourceId, message: FromWorker) -> None:
        self._post(in_s, Received(source=source, message=message))

    def _post(self, in_s: float, event: Event) -> None:
        at_s = self._clock.elapsed_s + in_s
        heapq.heappush(self._coming, (at_s, next(self._order), event))


def best_so_far(reports: Sequence[Reported], *, is_maximized: bool) -> list[Reported]:
    """The reports that were better than all before them."""
    best: list[Reported] = []
    for each in reports:
        if np.isnan(each.value):
            continue
        is_better = not best or (
            each.value > best[-1].value if is_maximized else each.value < best[-1].value
        )
        if is_better:
            best.append(each)
    return best
