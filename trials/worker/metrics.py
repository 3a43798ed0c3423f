"""Reads metrics from a program's output: JSON lines, or a pattern of the study file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

#: Maximum of an integer column in every database.
MAX_STEP = 2**31 - 1
#: Text that would continue a number.
_MORE_OF_A_NUMBER = re.compile(r"\.?\d|[eE][-+]?\d")
_DECODER = json.JSONDecoder()
_WORD = re.compile(r"[^\s,;]{1,20}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Metrics found in one line."""

    #: None if the line has none; fractional if it has a fraction, for example of an epoch.
    step: float | None
    values: Mapping[str, float]
    metrics: Mapping[str, float] = field(default_factory=dict)
    #: Notes on a pattern that ended in the middle of a number.
    cut: str = ""


class LineReader(Protocol):
    """Finds metrics in one line of output."""

    def __call__(self, line: str) -> Reading | None: ...


def line_reader(objectives: Sequence[str], pattern: str | None) -> LineReader:
    """A reader of metrics in lines.

    Args:
        objectives: Names of the objectives.
        pattern: A regular expression with a named group for each; None reads JSON lines.
    """
    if pattern is None:
        return lambda line: read_json(line, objectives)
    compiled = re.compile(pattern)
    return lambda line: read_pattern(line, objectives, compiled)


def read_json(line: str, objectives: Sequence[str]) -> Reading | None:
    """Parses a line such as `{"step": 3, "accuracy": 0.91, "loss": 0.3}`; other lines are ignored.

    Ranks that print at once may write two such objects before two line ends: the first object
    counts, as it does if the ranks print one after the other.
    """
    text = line.strip()
    if not text.startswith("{"):
        return None
    try:
        found, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return None
    rest = text[end:].lstrip()
    if rest and not rest.startswith("{"):
        return None
    return _reading(found, objectives) if isinstance(found, dict) else None


def read_pattern(line: str, objectives: Sequence[str], pattern: re.Pattern[str]) -> Reading | None:
    match = pattern.search(line)
    reading = _reading(match.groupdict(), objectives) if match else None
    if match is None or reading is None or not (cut := _cut_number(match)):
        return reading
    return replace(reading, cut=cut)


def _cut_number(match: re.Match[str]) -> str:
    """A note if a group matches only the beginning of a number; else empty."""
    for name, text in match.groupdict().items():
        rest = match.string[match.end(name) :] if text else ""
        if text and text[-1].isdigit() and _MORE_OF_A_NUMBER.match(rest):
            whole = text + _WORD.findall(rest)[0]
            return (
                f"trial.metrics.pattern takes {text!r} as {name}, but the output continues: "
                f"{whole!r}. Write {{{name}}} in the pattern, which takes any number."
            )
    return ""


def _reading(found: Mapping[str, object], objectives: Sequence[str]) -> Reading | None:
    numbers = {name: number for name, raw in found.items() if (number := _number(raw)) is not None}
    values = {name: numbers.pop(name) for name in objectives if name in numbers}
    step = numbers.pop("step", None)
    if not values:
        return None
    if step is not None and not 0 <= step <= MAX_STEP:
        step = None
    return Reading(step=step, values=values, metrics=numbers)


def _number(raw: object) -> float | None:
    if isinstance(raw, bool) or not isinstance(raw, (int, float, str)):
        return None
    try:
        return float(raw)
    except (ValueError, OverflowError):
        return None


class StepCounter:
    """Converts steps to whole numbers.

    After the first fractional step, such as epoch 0.5, reports are numbered consecutively, so that
    two reports never get the same step.
    """

    def __init__(self) -> None:
        self._next_step = 0
        #: The first step that was no whole number; None until there is one.
        self.fraction: float | None = None

    def whole(self, step: float | None) -> int:
        """Converts a reported step to a whole one.

        Args:
            step: Step that the program reports, from 0; None if it reports none.
        """
        if self.fraction is None and step is not None and step % 1:
            self.fraction = step
        is_counted = step is None or self.fraction is not None
        whole = self._next_step if is_counted else int(step or 0)
        self._next_step = whole + 1
        return whole

    @property
    def remark(self) -> str:
        """Explains the numbering after a fractional step; empty before."""
        if self.fraction is None:
            return ""
        return (
            f"The program reports fractional steps ({self.fraction:g}). The tuner stores whole "
            "steps and numbers the reports instead. Arguments of the pruner, such as "
            "min_resource, then count reports."
        )


class StepOrder:
    """Notices steps that are reported again with another value, or after a later one."""

    def __init__(self) -> None:
        #: The latest step with a value and this value, by objective.
        self._last: dict[str, tuple[float, float]] = {}
        self._found = ""

    def note(self, values: Mapping[str, float], step: float) -> None:
        """Records a report, to detect repeated steps.

        Args:
            values: Values of the objectives in this report.
            step: Its step, as reported.
        """
        for name, value in values.items():
            last, before = self._last.get(name, (-1.0, value))
            if step < last:
                self._found = self._found or f"step {step:g} after step {last:g}"
            else:
                # A last evaluation prints the value once more.
                if step == last and value != before:
                    self._found = self._found or f"step {step:g} twice"
                self._last[name] = (step, value)

    def remark(self, advice: str) -> str:
        """Explains how such reports are handled; empty if there were none.

        Args:
            advice: How this kind of program can report each step once.
        """
        if not self._found:
            return ""
        return (
            f"The program reports {self._found}. Only the first report of each step is compared "
            f"with other trials. {advice}"
        )


class Curve:
    """Gathers readings into reports: a report needs a value for each objective and a step."""

    def __init__(self, objectives: Sequence[str]) -> None:
        self._objectives = tuple(objectives)
        self.steps = StepCounter()
        self.order = StepOrder()
        #: The latest value of each objective seen so far.
        self.values: dict[str, float] = {}

    def add(self, reading: Reading) -> int | None:
        """Adds a reading; returns the step at which to report the latest values, or None."""
        self.values.update(reading.values)
        if any(name not in self.values for name in self._objectives):
            return None
        step = reading.step
        if step is not None and self.steps.fraction is None:
            self.order.note(reading.values, step)
        return self.steps.whole(step if step is None else max(0, step))


def as_step(step: object) -> float:
    """Takes Python, NumPy and one-element tensor numbers alike."""
    if isinstance(step, int | float):
        return step
    try:
        return step.item()  # type: ignore[attr-defined, no-any-return]  # of NumPy or torch
    except (AttributeError, ValueError, RuntimeError):
        raise TypeError(
            f"report: step is {step!r:.200}, which is not a number. Count steps up from 0, such as "
            "the epoch."
        ) from None


def as_number(name: str, value: object) -> float:
    """Takes Python, NumPy and one-element tensor numbers alike."""
    if detach := getattr(value, "detach", None):
        # A loss as it is; torch warns when one that has a gradient becomes a number.
        value = detach()
    try:
        return float(value)  # type: ignore[arg-type]  # whatever has __float__ is welcome
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(
            f"report: {name} is {value!r:.200}, which is not a number. Report a float."
        ) from None
