"""Workers in the dispatcher's own process, on a clock that jumps over every wait.

What the dispatcher takes is then all that is measured: nobody else works, and nobody sleeps.
"""

import heapq
import itertools
import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Protocol

from benchmarks.database.stored import OBJECTIVE, value_at
from tuner.domain.attempt import AttemptId, Outcome
from tuner.domain.messages import Action, Finished, FromWorker, Hello, Report, ToWorker, Verdict
from tuner.host.clock import Instant
from tuner.launch.inbox import Event, Received, SourceId, WorkerExited
from tuner.launch.request import LaunchRequest


class JumpingClock:
    """Moves when it is told to."""

    def __init__(self) -> None:
        self.elapsed_s = 0.0
        self._began_at = datetime.now(UTC)

    def now(self) -> Instant:
        at = self._began_at + timedelta(seconds=self.elapsed_s)
        return Instant(utc=at, monotonic_s=self.elapsed_s)

    def wait_until(self, elapsed_s: float) -> None:
        self.elapsed_s = max(self.elapsed_s, elapsed_s)


class PassingClock:
    """Moves by itself, from 0 on."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._began_at = datetime.now(UTC)

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began_s

    def now(self) -> Instant:
        elapsed_s = self.elapsed_s
        at = self._began_at + timedelta(seconds=elapsed_s)
        return Instant(utc=at, monotonic_s=elapsed_s)

    def wait_until(self, elapsed_s: float) -> None:
        time.sleep(max(0.0, elapsed_s - self.elapsed_s))


class PlayedClock(Protocol):
    """What played workers live by."""

    @property
    def elapsed_s(self) -> float: ...

    def wait_until(self, elapsed_s: float) -> None: ...


class PlayedWorkers:
    """The launcher, the channel and the events of a dispatcher, all in memory.

    Each worker says hello, reports, waits for the verdict, reports after a while again, and ends
    with its last report or where it is told to.

    Args:
        clock: Of the dispatcher.
        n_reports: Of each trial.
        report_every_s: Between two reports of one trial, on that clock.
        are_uneven: Trials report at a pace of their own, half as fast to half as fast again, so
            that they do not all end at once.
    """

    address = "memory"

    def __init__(
        self,
        clock: PlayedClock,
        *,
        n_reports: int,
        report_every_s: float,
        are_uneven: bool = False,
    ) -> None:
        self._clock = clock
        self._n_reports = n_reports
        self._every_s = report_every_s
        self._are_uneven = are_uneven
        self._coming: list[tuple[float, int, Event]] = []
        self._order = itertools.count()
        self._sources = itertools.count(1)
        self._attempt_of: dict[SourceId, AttemptId] = {}
        #: The last step for which there was a verdict.
        self._answered: dict[SourceId, int] = {}
        self.n_pruned = 0

    # -- launcher ------------------------------------------------------------------------------

    def launch(self, requests: Sequence[LaunchRequest]) -> tuple[int, ...]:
        for request in requests:
            number = next(self._sources)
            source, attempt_id = SourceId(number), request.attempt_id
            self._attempt_of[source] = attempt_id
            self._say(0.0, source, Hello(attempt_id=attempt_id, token="", pid=number))
            # Trials of different slots report at different moments.
            lag_s = self._every_s * _share(number)
            self._say(lag_s, source, self._report(attempt_id, 1))
        return tuple(os.getpid() for _ in requests)

    def free_port(self) -> int:
        return 0

    def terminate(self, attempt_id: AttemptId) -> None: ...

    def kill(self, attempt_id: AttemptId) -> None: ...

    # -- channel -------------------------------------------------------------------------------

    def expect(self, attempt_id: AttemptId) -> str:
        return ""

    def send(self, source: SourceId, message: ToWorker) -> None:
        if not isinstance(message, Verdict):
            return
        attempt_id = self._attempt_of.get(source)
        if attempt_id is None or message.step <= self._answered.get(source, 0):
            return  # Told once more, after the database was away for a moment.
        self._answered[source] = message.step
        is_pruned = message.action is not Action.CONTINUE
        if not is_pruned and message.step < self._n_reports:
            pace = 0.5 + _share(source) if self._are_uneven else 1.0
            self._say(self._every_s * pace, source, self._report(attempt_id, message.step + 1))
            return
        self.n_pruned += is_pruned
        outcome = Outcome.PRUNED if is_pruned else Outcome.COMPLETED
        values = {OBJECTIVE: value_at(message.step)}
        self._say(0.0, source, Finished(attempt_id=attempt_id, outcome=outcome, values=values))
        self._post(0.0, WorkerExited(attempt_id=attempt_id, exit_code=0))
        del self._attempt_of[source], self._answered[source]

    def broadcast(self, attempt_id: AttemptId, message: ToWorker) -> None: ...

    def read_rest(self, attempt_id: AttemptId) -> list[Event]:
        return []

    def dismiss(self, attempt_id: AttemptId) -> None: ...

    def close(self) -> None: ...

    # -- events --------------------------------------------------------------------------------

    def drain(self, timeout_s: float) -> list[Event]:
        now_s = self._clock.elapsed_s
        next_s = self._coming[0][0] if self._coming else now_s + timeout_s
        self._clock.wait_until(min(next_s, now_s + timeout_s))
        happened = []
        while self._coming and self._coming[0][0] <= self._clock.elapsed_s:
            happened.append(heapq.heappop(self._coming)[2])
        return happened

    def _report(self, attempt_id: AttemptId, step: int) -> Report:
        return Report(attempt_id=attempt_id, step=step, values={OBJECTIVE: value_at(step)})

    def _say(self, in_s: float, source: SourceId, message: FromWorker) -> None:
        self._post(in_s, Received(source=source, message=message))

    def _post(self, in_s: float, event: Event) -> None:
        at_s = self._clock.elapsed_s + in_s
        heapq.heappush(self._coming, (at_s, next(self._order), event))


def _share(number: int) -> float:
    """From 0 to 1, other for each number."""
    return number * 0.618 % 1
