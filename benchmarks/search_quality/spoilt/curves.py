"""Other curves of the same program: early values that mislead, noise, other durations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from benchmarks.search_quality.loop import Best, Bettered, Recorded
from benchmarks.search_quality.spoilt.common import Spoil, lowest, random_of, same
from benchmarks.search_quality.tasks import Task
from tuner.search_spaces import ParamValue
from tuner.search_spaces.space import is_number
from tuner.simulate.curves import Floats

_NOISE = 0.015


@dataclass(frozen=True, kw_only=True)
class Turned(Task):
    """The order of configurations is turned round before an epoch."""

    until: int
    #: [until], the least and the largest value in each epoch.
    least: Floats
    largest: Floats

    def train(self, params: Mapping[str, ParamValue]) -> Recorded[float]:
        recorded = super().train(params)
        values = np.array(recorded.values)
        share = (self.largest - values[: self.until]) / (self.largest - self.least + 1e-9)
        # Below the median end, so that no early value is taken for a good result.
        bottom = lowest(self)
        values[: self.until] = bottom + 0.98 * share * (self.median - bottom)
        return replace(recorded, values=[float(each) for each in values])


@dataclass(frozen=True, kw_only=True)
class HalfTurned(Turned):
    """It is turned round for one half of the configurations, by lot."""

    def train(self, params: Mapping[str, ParamValue]) -> Recorded[float]:
        is_turned = random_of(params).random() >= 0.5
        return super().train(params) if is_turned else Task.train(self, params)


def turned_until(until: int) -> Spoil:
    return lambda task: _turned(Turned, task, f"turned until {until}", until)


def half_turned(task: Task) -> Task:
    """The order is reversed until epoch 25 for one half of the configurations, by lot."""
    return _turned(HalfTurned, task, "half turned", 25)


def _turned(kind: type[Turned], task: Task, words: str, until: int) -> Task:
    early = task.table.values[:, :until]
    return kind(
        **same(task, name=f"{task.name}, {words}"),
        until=until,
        least=np.nanmin(early, axis=0),
        largest=np.nanmax(early, axis=0),
    )


@dataclass(frozen=True, kw_only=True)
class Meaningless(Task):
    """What a configuration reports before an epoch says nothing of it: one value, at random."""

    until: int

    def train(self, params: Mapping[str, ParamValue]) -> Recorded[float]:
        recorded = super().train(params)
        bottom = lowest(self)
        # Below the median end, as above.
        value = bottom + 0.98 * float(random_of(params).random()) * (self.median - bottom)
        early = [value] * min(self.until, len(recorded.values))
        return replace(recorded, values=[*early, *recorded.values[self.until :]])


def meaningless_until(until: int) -> Spoil:
    return lambda task: Meaningless(
        **same(task, name=f"{task.name}, meaningless until {until}"), until=until
    )


class Measured(float):
    """A value that is reported, and the true one."""

    true: float

    def __new__(cls, reported: float, true: float) -> Measured:
        made = super().__new__(cls, reported)
        made.true = true
        return made


class LargestMeasured:
    """The true value of what looked best."""

    def __init__(self) -> None:
        self.steps: list[Bettered] = []
        self._seen = -np.inf

    def take(self, at_s: float, value: float) -> None:
        if value > self._seen:
            self._seen = value
            self.steps.append(Bettered(at_s=at_s, value=getattr(value, "true", value)))


#: Of a task, a configuration and [n_epochs] its values: the true ones and those that are reported.
Change: TypeAlias = Callable[[Task, Mapping[str, ParamValue], Floats], tuple[Floats, Floats]]


@dataclass(frozen=True, kw_only=True)
class Changed(Task):
    """Other values are reported; the true value of what looked best counts."""

    change: Change

    def train(self, params: Mapping[str, ParamValue]) -> Recorded[float]:
        recorded = super().train(params)
        true, reported = self.change(self, params, np.array(recorded.values))
        values: list[float] = [
            Measured(float(shown), float(each)) for shown, each in zip(reported, true, strict=True)
        ]
        return replace(recorded, values=values)

    def new_best(self) -> Best[float]:
        return LargestMeasured()


def changed(words: str, change: Change) -> Spoil:
    return lambda task: Changed(**same(task, name=f"{task.name}, {words}"), change=change)


def noisy(task: Task, params: Mapping[str, ParamValue], values: Floats) -> tuple[Floats, Floats]:
    """Each value has noise of 1.5 % of itself."""
    return values, values * (1.0 + random_of(params).normal(0.0, _NOISE, len(values)))


def early_noise(
    task: Task, params: Mapping[str, ParamValue], values: Floats
) -> tuple[Floats, Floats]:
    """Noise of 15 % of a value, which falls to nothing at the end."""
    noise = 0.15 * random_of(params).normal(0.0, 1.0, len(values))
    return values, values * (1.0 + noise * np.linspace(1.0, 0.0, len(values)))


def spikes(task: Task, params: Mapping[str, ParamValue], values: Floats) -> tuple[Floats, Floats]:
    """Three in a hundred reports are too good by up to 20 points."""
    drawn = random_of(params)
    is_spike = drawn.random(len(values)) < 0.03
    higher = np.minimum(100.0, values + 20.0 * drawn.random(len(values)))
    return values, np.where(is_spike, higher, values)


def rounded(task: Task, params: Mapping[str, ParamValue], values: Floats) -> tuple[Floats, Floats]:
    """Values are rounded down to 5 points, so that many are equal."""
    return values, np.floor(values / 5.0) * 5.0


def exponential(
    task: Task, params: Mapping[str, ParamValue], values: Floats
) -> tuple[Floats, Floats]:
    """The worst are worse by ten orders of magnitude."""
    return values, -np.exp((100.0 - values) / 4.0)


def constant(task: Task, params: Mapping[str, ParamValue], values: Floats) -> tuple[Floats, Floats]:
    """All report the same until epoch 10."""
    return values, _begun_with([lowest(task)] * 10, values)


def delayed(task: Task, params: Mapping[str, ParamValue], values: Floats) -> tuple[Floats, Floats]:
    """Each begins to learn after as many epochs as a lot says, up to 30."""
    n = int(random_of(params).integers(0, 31))
    late = np.concatenate([np.full(n, lowest(task)), values])[: len(values)]
    return late, late


def late_rates(
    task: Task, params: Mapping[str, ParamValue], values: Floats
) -> tuple[Floats, Floats]:
    """With a learning rate above 0.01 nothing is learned until epoch 25, as without a warm-up."""
    rate = params["learning_rate"]
    assert is_number(rate)
    if rate <= 0.01:
        return values, values
    late = _begun_with([lowest(task)] * 25, values)
    return late, late


def overfitting(
    task: Task, params: Mapping[str, ParamValue], values: Floats
) -> tuple[Floats, Floats]:
    """From an epoch on that a lot says, values fall by half a point in each."""
    peak = int(random_of(params).integers(5, 53))
    falling = values - 0.5 * np.maximum(0, np.arange(1, len(values) + 1) - peak)
    return falling, falling


def _begun_with(first: Sequence[float] | Floats, values: Floats) -> Floats:
    """Values, the first of which are others."""
    return np.concatenate([first, values[len(first) :]])[: len(values)]


@dataclass(frozen=True, kw_only=True)
class Slow(Task):
    """The best take five times as long."""

    def train(self, params: Mapping[str, ParamValue]) -> Recorded[float]:
        recorded = super().train(params)
        share = (max(recorded.values) - self.median) / (self.best - self.median)
        return replace(recorded, seconds=recorded.seconds * (1.0 + 4.0 * max(0.0, share)))


def slow(task: Task) -> Task:
    return Slow(**same(task, name=f"{task.name}, slow"))
