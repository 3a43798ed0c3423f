"""Parameters of attempts as columns of numbers, for a regression on them."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tuner.search_spaces import ParamValue
from tuner.search_spaces.space import is_number

Array: TypeAlias = NDArray[np.float64]

_MAX_CHOICES = 8
#: Such a value is as far below the range as this many times its width, zero included.
_FAR_BELOW = -2.0
#: A narrower range (of a logarithm, or part of the largest size) is taken for one this wide.
_MIN_SPAN = 0.5
#: Whole numbers may be larger than any float.
_LARGEST = 1e100


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The parameters of an attempt, sorted into sizes and choices."""

    numbers: Mapping[str, float]
    words: Mapping[str, str]


def key_of(params: Mapping[str, ParamValue]) -> str:
    return json.dumps(params, sort_keys=True)


def point_of(params: Mapping[str, ParamValue]) -> Point:
    numbers = {
        name: float(max(-_LARGEST, min(value, _LARGEST)))
        for name, value in params.items()
        if is_number(value) and value == value
    }
    # As a choice all numbers are alike: their size is another column's.
    words = {name: "" if name in numbers else repr(params[name]) for name in params}
    return Point(numbers=numbers, words=words)


class _Column(Protocol):
    """A parameter as numbers, one for each point."""

    def of(self, points: Sequence[Point]) -> Array: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Size:
    """Between 0 and 1 within the range seen; in its middle for missing numbers."""

    name: str
    low: float
    span: float
    is_log: bool

    def of(self, points: Sequence[Point]) -> Array:
        values = np.array([point.numbers.get(self.name, math.nan) for point in points])
        if self.is_log:
            values = np.log(np.maximum(values, 1 / _LARGEST))
        places = np.maximum(_FAR_BELOW, (values - self.low) / self.span)
        return np.where(np.isnan(places), 0.5, places)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """1 if a parameter has one word, else 0."""

    name: str
    word: str | None

    def of(self, points: Sequence[Point]) -> Array:
        return np.array([float(point.words.get(self.name) == self.word) for point in points])


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    columns: tuple[_Column, ...]
    #: Values of each parameter; None for its absence.
    words: Mapping[str, frozenset[str | None]]

    def rows(self, points: Sequence[Point]) -> Array:
        """[points, columns]"""
        columns = [column.of(points) for column in self.columns]
        return np.stack(columns, axis=1) if columns else np.zeros((len(points), 0))

    def is_known(self, point: Point) -> bool:
        """Whether it has no parameter and no choice that was never seen."""
        return point.words.keys() <= self.words.keys() and all(
            point.words.get(name) in words for name, words in self.words.items()
        )


def encoding_of(points: Sequence[Point]) -> Encoding:
    columns: list[_Column] = []
    all_words: dict[str, frozenset[str | None]] = {}
    for name in sorted({name for point in points for name in point.words}):
        numbers = [point.numbers[name] for point in points if name in point.numbers]
        if numbers:
            columns.append(_size(name, min(numbers), max(numbers)))
        words = Counter(point.words.get(name) for point in points)
        if len(words) > 1:
            columns += [_Choice(name=name, word=w) for w, _ in words.most_common(_MAX_CHOICES)]
        all_words[name] = frozenset(words)
    return Encoding(columns=tuple(columns), words=all_words)


def _size(name: str, low: float, high: float) -> _Size:
    if low > 0:
        span = max(_MIN_SPAN, math.log(high) - math.log(low))
        return _Size(name=name, low=math.log(low), span=span, is_log=True)
    span = max(high - low, _MIN_SPAN * abs(low), 1 / _LARGEST)
    return _Size(name=name, low=low, span=span, is_log=False)
