"""Plays one search on recorded curves: workers that train, on a clock that jumps."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, Protocol, TypeVar

from tuner.search_spaces import ParamValue
from tuner.simulate.curves import Floats

Value = TypeVar("Value")
"""What a report has: a number, or one for each objective."""
Taken = TypeVar("Taken", contravariant=True)


class Verdict(Enum):
    GO_ON = "go on"
    STOP = "stop"
    PAUSE = "pause"


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """What a worker does next."""

    trial: int
    params: Mapping[str, ParamValue]


class Search(Protocol[Taken]):
    """A tuner's sampler and pruner."""

    def next(self) -> Next:
        """For a worker that is free: a new trial, or one that was paused."""

    def report(self, trial: int, step: int, value: Taken, *, held_s: float) -> Verdict:
        """After each step but the last, and how long ago the worker took the trial up."""

    def complete(self, trial: int, step: int, value: Taken) -> None:
        """After the last step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded(Generic[Value]):
    """One training."""

    #: After each step.
    values: Sequence[Value]
    #: [n_steps], since it began.
    seconds: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Bettered:
    """The best value so far, from this instant on."""

    at_s: float
    value: float


class Best(Protocol[Taken]):
    """How good the best is that was seen so far."""

    steps: list[Bettered]

    def take(self, at_s: float, value: Taken) -> None:
        """Something is seen, at an instant."""


class Program(Protocol[Value]):
    """What is searched on."""

    @property
    def full_s(self) -> float:
        """A whole training, in the median."""

    def train(self, params: Mapping[str, ParamValue]) -> Recorded[Value]:
        """What a configuration does."""

    def new_best(self) -> Best[Value]:
        """Where nothing is seen yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What came of a search."""

    #: By any report.
    reported: Sequence[Bettered]
    #: By the ends of whole trainings alone.
    completed: Sequence[Bettered]
    end_s: float
    n_trials: int
    #: Of this machine, in sampler and pruner, for each trial that was begun.
    search_ms: float


@dataclass(slots=True)
class _Training(Generic[Value]):
    recorded: Recorded[Value]
    done: int = 0
    #: When its worker took it up.
    begun_s: float = 0.0


@dataclass(slots=True)
class Largest:
    """The best of one objective that is maximized."""

    steps: list[Bettered] = field(default_factory=list)

    def take(self, at_s: float, value: float) -> None:
        if not self.steps or value > self.steps[-1].value:
            self.steps.append(Bettered(at_s=at_s, value=value))


def play(
    search: Search[Value],
    task: Program[Value],
    *,
    n_workers: int,
    restart_s: float,
    n_medians: float,
) -> Played:
    """
    Args:
        search: The tuner.
        task: What it searches on.
        n_workers: That train at a time.
        restart_s: What each attempt costs before it trains.
        n_medians: How long: in whole trainings, of the median configuration, one after the other.
    """
    played = _Play(search, task, restart_s)
    end_s = n_medians * task.full_s
    for _ in range(n_workers):
        played.begin(0.0)
    while played.next_at_s <= end_s:
        played.step()
    return Played(
        reported=played.reported.steps,
        completed=played.completed.steps,
        end_s=end_s,
        n_trials=len(played.trainings),
        search_ms=played.took_s * 1e3 / len(played.trainings),
    )


class _Play(Generic[Value]):
    """A search on a virtual clock: workers that train what is recorded, report by report."""

    def __init__(self, search: Search[Value], task: Program[Value], restart_s: float) -> None:
        self._search = search
        self._task = task
        self._restart_s = restart_s
        #: Reports to come: the instant, an order among those of one instant, and the trial.
        self._coming: list[tuple[float, int, int]] = []
        self._order = itertools.count()
        self.trainings: dict[int, _Training[Value]] = {}
        self.reported, self.completed = task.new_best(), task.new_best()
        #: Real seconds, in sampler and pruner.
        self.took_s = 0.0

    @property
    def next_at_s(self) -> float:
        """When the next report comes."""
        return self._coming[0][0]

    def begin(self, now_s: float) -> None:
        """Lets an idle worker train what the search chooses."""
        with self._timed():
            chosen = self._search.next()
        if chosen.trial not in self.trainings:
            self.trainings[chosen.trial] = _Training(self._task.train(chosen.params))
        self.trainings[chosen.trial].begun_s = now_s
        self._train(now_s + self._restart_s, chosen.trial)

    def step(self) -> None:
        """Takes the next report; its worker trains on, or begins something else."""
        now_s, _, trial = heapq.heappop(self._coming)
        training = self.trainings[trial]
        value = training.recorded.values[training.done]
        training.done += 1
        self.reported.take(now_s, value)
        if training.done == len(training.recorded.values):
            self.completed.take(now_s, value)
        if self._judge(now_s, trial, training, value) is Verdict.GO_ON:
            self._train(now_s, trial)
        else:
            self.begin(now_s)

    def _judge(self, now_s: float, trial: int, training: _Training[Value], value: Value) -> Verdict:
        with self._timed():
            if training.done == len(training.recorded.values):
                self._search.complete(trial, training.done, value)
                return Verdict.STOP
            held_s = now_s - training.begun_s
            return self._search.report(trial, training.done, value, held_s=held_s)

    def _train(self, now_s: float, trial: int) -> None:
        """Lets a worker train until its next report."""
        training = self.trainings[trial]
        seconds, done = training.recorded.seconds, training.done
        takes_s = float(seconds[done] - (seconds[done - 1] if done else 0.0))
        heapq.heappush(self._coming, (now_s + takes_s, next(self._order), trial))

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        began_s = time.perf_counter()
        yield
        self.took_s += time.perf_counter() - began_s
