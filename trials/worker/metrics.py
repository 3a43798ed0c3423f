"""Reads metrics from what a program prints: JSON lines, or a pattern of the study file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

#: What an integer column holds on every database.
MAX_STEP = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Metrics found in one line. `step` is None where the line does not say."""

    step: int | None
    values: Mapping[str, float]
    metrics: Mapping[str, float] = field(default_factory=dict)


class LineReader(Protocol):
    """Finds metrics in one line of output."""

    def __call__(self, line: str) -> Reading | None: ...


def line_reader(objectives: Sequence[str], pattern: str | None) -> LineReader:
    """
    Args:
        objectives: Names of the objectives.
        pattern: A regular expression with a named group for each; None reads JSON lines.
    """
    if pattern is None:
        return lambda line: read_json(line, objectives)
    compiled = re.compile(pattern)
    return lambda line: read_pattern(line, objectives, compiled)


def read_json(line: str, objectives: Sequence[str]) -> Reading | None:
    """A line such as `{"step": 3, "accuracy": 0.91, "loss": 0.3}`; other lines are not ours."""
    if not line.lstrip().startswith("{"):
        return None
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return _reading(found, objectives) if isinstance(found, dict) else None


def read_pattern(line: str, objectives: Sequence[str], pattern: re.Pattern[str]) -> Reading | None:
    match = pattern.search(line)
    return _reading(match.groupdict(), objectives) if match else None


def _reading(found: Mapping[str, object], objectives: Sequence[str]) -> Reading | None:
    numbers = {name: number for name, raw in found.items() if (number := _number(raw)) is not None}
    values = {name: numbers.pop(name) for name in objectives if name in numbers}
    step = numbers.pop("step", None)
    if not values:
        return None
    if step is not None and not 0 <= step <= MAX_STEP:
        step = None
    return Reading(step=None if step is None else int(step), values=values, metrics=numbers)


def _number(raw: object) -> float | None:
    if isinstance(raw, bool) or not isinstance(raw, (int, float, str)):
        return None
    try:
        return float(raw)
    except (ValueError, OverflowError):
        return None


class Curve:
    """Gathers readings into reports: a report needs a value for each objective and a step."""

    def __init__(self, objectives: Sequence[str]) -> None:
        self._objectives = tuple(objectives)
        self._next_step = 0
        #: The latest value of each objective seen so far.
        self.values: dict[str, float] = {}

    def add(self, reading: Reading) -> int | None:
        """Takes a reading; gives the step to report the latest values at, or None for not yet."""
        self.values.update(reading.values)
        if any(name not in self.values for name in self._objectives):
            return None
        step = self._next_step if reading.step is None else max(0, reading.step)
        self._next_step = step + 1
        return step


def as_number(name: str, value: object) -> float:
    """Takes Python, NumPy and one-element tensor numbers alike."""
    if detach := getattr(value, "detach", None):
        # A loss as it stands; torch warns when one that has a gradient becomes a number.
        value = detach()
    try:
        return float(value)  # type: ignore[arg-type]  # whatever has __float__ is welcome
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"report: {name} is {value!r}, which is not a number. Report a float."
        ) from error
