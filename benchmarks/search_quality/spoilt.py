"""Ways to make recorded curves harder to search: each misleads another part of a search."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

import numpy as np

from benchmarks.search_quality.loop import Best, Bettered, Recorded
from benchmarks.search_quality.spaces import LCBENCH_SPACE
from benchmarks.search_quality.tasks import Task
from tuner.search_spaces import ParamValue, parse_space
from tuner.search_spaces.space import is_number
from tuner.simulate.curves import Floats

Spoil: TypeAlias = Callable[[Task], Task]
#: Of the names of categories and of the noise: the same in every search.
_SEED = 0
_N_CATEGORIES = 6
_N_WITHOUT_EFFECT = 15
_N_WHOLE = 20
_NOISE = 0.015
#: Ranges as users give them who do not know their program: seven of eight configurations learn
#: nothing with the learning rate or the weight decay that they have.
_WIDE: Mapping[str, tuple[float, float]] = {
    "learning_rate": (1e-8, 100.0),
    "weight_decay": (1e-8, 10.0),
}
#: What a parameter of a space becomes.
Words: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Translated(Task):
    """The same program behind another space."""

    #: To what the table has, by parameter; the others are as they are.
    translations: Mapping[str, Mapping[ParamValue, ParamValue]]

    def train(self, params: Mapping[str, ParamValue]) -> Recorded[float]:
        known = {name: params[name] for name in LCBENCH_SPACE}
        return super().train({k: self.translations.get(k, {}).get(v, v) for k, v in known.items()})


def categories(task: Task) -> Task:
    """All but learning rate and momentum have six values each, whose order says nothing."""
    return _translated(task, "categories", ["batch_size", *list(LCBENCH_SPACE)[3:]], _as_categories)


def conditional(task: Task) -> Task:
    """Momentum, dropout and weight decay exist only where a choice says so."""
    space: dict[str, Words] = {
        "optimizer": {"type": "categorical", "choices": ["plain", "momentum"]},
        "regularization": {
            "type": "categorical",
            "choices": ["none", "dropout", "decay", "both"],
        },
        **LCBENCH_SPACE,
        "momentum": {**LCBENCH_SPACE["momentum"], "when": {"optimizer": "momentum"}},
        "max_dropout": {
            **LCBENCH_SPACE["max_dropout"],
            "when": {"regularization": ["dropout", "both"]},
        },
        "weight_decay": {
            **LCBENCH_SPACE["weight_decay"],
            "when": {"regularization": ["decay", "both"]},
        },
    }
    absent = {name: LCBENCH_SPACE[name]["low"] for name in space if "when" in space[name]}
    return Conditional(
        **_same(task, name=f"{task.name}, conditional", space=parse_space(space)), absent=absent
    )


@dataclass(frozen=True, kw_only=True)
class Conditional(Task):
    """The same program, whose parameters may be left out."""

    #: What one has that is left out: the least.
    absent: Mapping[str, Any]

    def train(self, params: Mapping[str, ParamValue]) -> Recorded[float]:
        return super().train({name: {**self.absent, **params}[name] for name in LCBENCH_SPACE})


def whole(task: Task) -> Task:
    """Each parameter is a whole number from 0 to 20."""
    return _translated(task, "whole", LCBENCH_SPACE, _as_whole)


def without_effect(task: Task) -> Task:
    """Fifteen more parameters, which do nothing."""
    more = {
        f"unused_{i}": {"type": "float", "low": 0.0, "high": 1.0} for i in range(_N_WITHOUT_EFFECT)
    }
    return _with_space(task, "without effect", {**LCBENCH_SPACE, **more}, {})


@dataclass(frozen=True, kw_only=True)
class Wide(Task):
    """The same program, which learns nothing outside the ranges of the table."""

    def train(self, params: Mapping[str, ParamValue]) -> Recorded[float]:
        inside = dict(params)
        for name in _WIDE:
            known, value = LCBENCH_SPACE[name], params[name]
            assert is_number(value)
            inside[name] = min(max(value, known["low"]), known["high"])
        recorded = super().train(inside)
        if inside == params:
            return recorded
        lowest = _lowest(self)
        return replace(recorded, values=[lowest] * len(recorded.values))


def wide(task: Task) -> Task:
    """Learning rate and weight decay have far too wide ranges, where most learn nothing."""
    space: dict[str, Words] = dict(LCBENCH_SPACE)
    for name, (low, high) in _WIDE.items():
        space[name] = {"type": "float", "low": low, "high": high, "log": True}
    return Wide(**_same(task, name=f"{task.name}, wide", space=parse_space(space)))


def _translated(
    task: Task,
    kind: str,
    names: Any,
    change: Callable[[str, Words], tuple[Words, Mapping[ParamValue, ParamValue]]],
) -> Task:
    space: dict[str, Words] = dict(LCBENCH_SPACE)
    translations = {}
    for name in names:
        space[name], translations[name] = change(name, LCBENCH_SPACE[name])
    return _with_space(task, kind, space, translations)


def _with_space(
    task: Task,
    kind: str,
    space: Mapping[str, Words],
    translations: Mapping[str, Mapping[ParamValue, ParamValue]],
) -> Task:
    return Translated(
        **_same(task, name=f"{task.name}, {kind}", space=parse_space(space)),
        translations=translations,
    )


def _same(task: Task, **others: object) -> dict[str, Any]:
    """The fields of a task, some of them replaced."""
    return {each.name: getattr(task, each.name) for each in fields(Task)} | others


def _as_categories(name: str, words: Words) -> tuple[Words, Mapping[ParamValue, ParamValue]]:
    values = _spread(words, _N_CATEGORIES)
    random.Random(f"{_SEED}/{name}").shuffle(values)
    labels = [f"{name[0]}{i}" for i in range(len(values))]
    return {"type": "categorical", "choices": labels}, dict(zip(labels, values, strict=True))


def _as_whole(name: str, words: Words) -> tuple[Words, Mapping[ParamValue, ParamValue]]:
    values = _spread(words, _N_WHOLE + 1)
    places: Mapping[ParamValue, ParamValue] = dict(enumerate(values))
    return {"type": "int", "low": 0, "high": len(values) - 1}, places


def _spread(words: Words, n: int) -> list[ParamValue]:
    """So many values over a range, evenly as its space is."""
    place = np.geomspace if words.get("log") else np.linspace
    values = place(words["low"], words["high"], n)
    if words["type"] == "int":
        return [*sorted({round(float(each)) for each in values})]
    # Rounding may leave the range by the last bit.
    return [float(each) for each in np.clip(values, words["low"], words["high"])]


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
        lowest = _lowest(self)
        values[: self.until] = lowest + 0.98 * share * (self.median - lowest)
        return replace(recorded, values=[float(each) for each in values])


def turned_until(until: int) -> Spoil:
    def turn(task: Task) -> Task:
        early = task.table.values[:, :until]
        return Turned(
            **_same(task, name=f"{task.name}, turned until {until}"),
            until=until,
            least=np.nanmin(early, axis=0),
            largest=np.nanmax(early, axis=0),
        )

    return turn


@dataclass(frozen=True, kw_only=True)
class Meaningless(Task):
    """What a configuration reports before an epoch says nothing of it: one value, at random."""

    until: int

    def train(self, params: Mapping[str, ParamValue]) -> Recorded[float]:
        recorded = super().train(params)
        lowest = _lowest(self)
        # Below the median end, as above.
        value = lowest + 0.98 * float(_random(params).random()) * (self.median - lowest)
        early = [value] * min(self.until, len(recorded.values))
        return replace(recorded, values=[*early, *recorded.values[self.until :]])


def meaningless_until(until: int) -> Spoil:
    return lambda task: Meaningless(
        **_same(task, name=f"{task.name}, meaningless until {until}"), until=until
    )


def _random(params: Mapping[str, ParamValue]) -> np.random.Generator:
    """The same for the same configuration."""
    return np.random.default_rng([_SEED, zlib.crc32(repr(sorted(params.items())).encode())])


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
    return lambda task: Changed(**_same(task, name=f"{task.name}, {words}"), change=change)


def _noise(task: Task, params: Mapping[str, ParamValue], values: Floats) -> tuple[Floats, Floats]:
    """Each value has noise of 1.5 % of itself."""
    return values, values * (1.0 + _random(params).normal(0.0, _NOISE, len(values)))


def _early_noise(
    task: Task, params: Mapping[str, ParamValue], values: Floats
) -> tuple[Floats, Floats]:
    """Noise of 15 % of a value, which falls to nothing at the end."""
    noise = 0.15 * _random(params).normal(0.0, 1.0, len(values))
    return values, values * (1.0 + noise * np.linspace(1.0, 0.0, len(values)))


def _spikes(task: Task, params: Mapping[str, ParamValue], values: Floats) -> tuple[Floats, Floats]:
    """Three in a hundred reports are too good by up to 20 points."""
    drawn = _random(params)
    is_spike = drawn.random(len(values)) < 0.03
    higher = np.minimum(100.0, values + 20.0 * drawn.random(len(values)))
    return values, np.where(is_spike, higher, values)


def _rounded(task: Task, params: Mapping[str, ParamValue], values: Floats) -> tuple[Floats, Floats]:
    """Values are rounded down to 5 points, so that many are equal."""
    return values, np.floor(values / 5.0) * 5.0


def _exponential(
    task: Task, params: Mapping[str, ParamValue], values: Floats
) -> tuple[Floats, Floats]:
    """The worst are worse by ten orders of magnitude."""
    return values, -np.exp((100.0 - values) / 4.0)


def _constant(
    task: Task, params: Mapping[str, ParamValue], values: Floats
) -> tuple[Floats, Floats]:
    """All report the same until epoch 10."""
    return values, _begun_with([_lowest(task)] * 10, values)


def _delayed(task: Task, params: Mapping[str, ParamValue], values: Floats) -> tuple[Floats, Floats]:
    """Each begins to learn after as many epochs as a lot says, up to 30."""
    n = int(_random(params).integers(0, 31))
    late = np.concatenate([np.full(n, _lowest(task)), values])[: len(values)]
    return late, late


def _late_rates(
    task: Task, params: Mapping[str, ParamValue], values: Floats
) -> tuple[Floats, Floats]:
    """With a learning rate above 0.01 nothing is learned until epoch 25, as without a warm-up."""
    rate = params["learning_rate"]
    assert is_number(rate)
    if rate <= 0.01:
        return values, values
    late = _begun_with([_lowest(task)] * 25, values)
    return late, late


def _overfitting(
    task: Task, params: Mapping[str, ParamValue], values: Floats
) -> tuple[Floats, Floats]:
    """From an epoch on that a lot says, values fall by half a point in each."""
    peak = int(_random(params).integers(5, 53))
    falling = values - 0.5 * np.maximum(0, np.arange(1, len(values) + 1) - peak)
    return falling, falling


def _half_turned(
    task: Task, params: Mapping[str, ParamValue], values: Floats
) -> tuple[Floats, Floats]:
    """The order is reversed until epoch 25 for one half of the configurations, by lot."""
    if _random(params).random() < 0.5:
        return values, values
    early = task.table.values[:, :25]
    least, largest = np.nanmin(early, axis=0), np.nanmax(early, axis=0)
    share = (largest - values[:25]) / (largest - least + 1e-9)
    lowest = _lowest(task)
    turned = _begun_with(lowest + 0.98 * share * (task.median - lowest), values)
    return turned, turned


def _begun_with(first: Sequence[float] | Floats, values: Floats) -> Floats:
    """Values, the first of which are others."""
    return np.concatenate([first, values[len(first) :]])[: len(values)]


def _lowest(task: Task) -> float:
    return float(np.nanmin(task.table.values))


@dataclass(frozen=True, kw_only=True)
class Slow(Task):
    """The best take five times as long."""

    def train(self, params: Mapping[str, ParamValue]) -> Recorded[float]:
        recorded = super().train(params)
        share = (max(recorded.values) - self.median) / (self.best - self.median)
        return replace(recorded, seconds=recorded.seconds * (1.0 + 4.0 * max(0.0, share)))


def slow(task: Task) -> Task:
    return Slow(**_same(task, name=f"{task.name}, slow"))


def linear(task: Task) -> Task:
    """No range is logarithmic."""
    space = {
        name: {key: value for key, value in words.items() if key != "log"}
        for name, words in LCBENCH_SPACE.items()
    }
    return _with_space(task, "linear", space, {})


WAYS: Mapping[str, Spoil] = {
    "turned5": turned_until(5),
    "turned25": turned_until(25),
    "turned40": turned_until(40),
    "meaningless15": meaningless_until(15),
    "categories": categories,
    "conditional": conditional,
    "without_effect": without_effect,
    "whole": whole,
    "noise": changed("noisy", _noise),
    "wide": wide,
    "linear": linear,
    "turned2": turned_until(2),
    "turned48": turned_until(48),
    "half_turned": changed("half turned", _half_turned),
    "constant10": changed("constant until 10", _constant),
    "delayed": changed("delayed", _delayed),
    "late_rates": changed("late rates", _late_rates),
    "overfitting": changed("overfitting", _overfitting),
    "early_noise": changed("early noise", _early_noise),
    "spikes": changed("spikes", _spikes),
    "rounded": changed("rounded", _rounded),
    "exponential": changed("exponential", _exponential),
    "slow": slow,
}
