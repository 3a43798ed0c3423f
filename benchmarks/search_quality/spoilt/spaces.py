"""Other spaces before the same program: each misleads another part of a search."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from benchmarks.search_quality.loop import Recorded
from benchmarks.search_quality.spaces import LCBENCH_SPACE
from benchmarks.search_quality.spoilt.common import SEED, Spoil, lowest, same
from benchmarks.search_quality.tasks import Task
from tuner.search_spaces import ParamValue, parse_space
from tuner.search_spaces.space import is_number

_N_CATEGORIES = 6
_N_WITHOUT_EFFECT = 15
_N_WHOLE = 20
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


def of_lcbench(spoil: Spoil) -> Spoil:
    """Says so where a task has another space than these ways are made for."""

    def spoilt(task: Task) -> Task:
        names = [each.name for each in task.space.parameters]
        if set(names) != set(LCBENCH_SPACE):
            raise ValueError(
                f"{task.name} has the parameters {', '.join(names)}. This way to make it harder "
                f"is for {', '.join(LCBENCH_SPACE)}."
            )
        return spoil(task)

    return spoilt


def categories(task: Task) -> Task:
    """All but learning rate and momentum have six values each, whose order says nothing."""
    return _translated(task, "categories", ["batch_size", *list(LCBENCH_SPACE)[3:]], _as_categories)


def conditional(task: Task) -> Conditional:
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
        **same(task, name=f"{task.name}, conditional", space=parse_space(space)), absent=absent
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
        bottom = lowest(self)
        return replace(recorded, values=[bottom] * len(recorded.values))


def wide(task: Task) -> Task:
    """Learning rate and weight decay have far too wide ranges, where most learn nothing."""
    space: dict[str, Words] = dict(LCBENCH_SPACE)
    for name, (low, high) in _WIDE.items():
        space[name] = {"type": "float", "low": low, "high": high, "log": True}
    return Wide(**same(task, name=f"{task.name}, wide", space=parse_space(space)))


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
        **same(task, name=f"{task.name}, {kind}", space=parse_space(space)),
        translations=translations,
    )


def _as_categories(name: str, words: Words) -> tuple[Words, Mapping[ParamValue, ParamValue]]:
    values = _spread(words, _N_CATEGORIES)
    random.Random(f"{SEED}/{name}").shuffle(values)
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


def linear(task: Task) -> Task:
    """No range is logarithmic."""
    space = {
        name: {key: value for key, value in words.items() if key != "log"}
        for name, words in LCBENCH_SPACE.items()
    }
    return _with_space(task, "linear", space, {})
