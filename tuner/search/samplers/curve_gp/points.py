"""Reports of a study's trainings, as points of configuration and step. No I/O.

A curve is represented by about ten points, evenly spaced over the logarithm of the step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from optuna.trial import FrozenTrial, TrialState

from tuner.search.trial_attributes.vector_curve import CURVE_KEY, is_next

Array = NDArray[np.float64]

#: Number of best trials near which candidates are generated.
N_LEADERS = 5
#: Maximum fraction of points from the longest curves; the rest is a sample of the others.
_LONGEST_SHARE = 0.7
#: Values further than this many interquartile ranges below the quartiles are clipped.
_FENCE = 3.0
#: Larger values count as infinite.
_LARGEST = 1e100


def is_informative(trial: FrozenTrial) -> bool:
    """Whether a trial has any information about its configuration."""
    if trial.intermediate_values or trial.state is TrialState.COMPLETE:
        return True
    return CURVE_KEY in trial.system_attrs or bool(trial.constraints)


def thinned(trial: FrozenTrial) -> dict[int, float]:
    """Some reports of a trial by step, the last among them; its end value in place of the last."""
    reports = trial.intermediate_values
    chosen: list[int] = []
    steps = sorted(reports)
    for step in steps:
        if not chosen or is_next(step, chosen[-1]) or step == steps[-1]:
            chosen.append(step)
    points = {step: reports[step] for step in chosen}
    # With several objectives a trial has no such curve, and no `value`.
    if steps and trial.state is TrialState.COMPLETE and trial.value is not None:
        points[steps[-1]] = trial.value
    return {step: value for step, value in points.items() if abs(value) < _LARGEST}


class Observed(NamedTuple):
    """One point of one trial's curve."""

    trial: FrozenTrial
    step: int
    #: The larger the better.
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Scales steps to the range from the first (0) to the last (1) step of all trials."""

    first: int
    last: int

    def place(self, step: int) -> float:
        if self.last == self.first:
            return 1.0
        return math.log(step - self.first + 1) / math.log(self.last - self.first + 1)


def observed(
    curves: Sequence[tuple[FrozenTrial, Mapping[int, float]]],
    *,
    is_maximized: bool,
    limit: int,
    after: int = 0,
) -> tuple[list[Observed], Steps]:
    """Collects the observed points of trials.

    Args:
        curves: Trials, each with its thinned reports.
        is_maximized: Whether larger values are better.
        limit: Maximum number of points: those of the best trials and of the longest curves first.
        after: Only reports after this step count, and results without reports.

    Returns:
        The points, with outliers clipped, and the range of their steps.
    """
    sign = 1.0 if is_maximized else -1.0
    curves = [(trial, _after(after, curve)) for trial, curve in curves]
    ends = [step for _, curve in curves for step in curve]
    steps = Steps(first=min(ends, default=0), last=max(ends, default=0))
    points = {
        trial.number: [Observed(trial, step, sign * value) for step, value in curve.items()]
        or _end_of(trial, steps.last, sign)
        for trial, curve in curves
    }
    points = {number: of_trial for number, of_trial in points.items() if of_trial}
    return _fenced(_chosen(points, limit)), steps


def _after(step: int, curve: Mapping[int, float]) -> Mapping[int, float]:
    return {each: value for each, value in curve.items() if each > step} if step else curve


def _end_of(trial: FrozenTrial, step: int, sign: float) -> list[Observed]:
    """The final value of a program without intermediate reports."""
    if trial.state is not TrialState.COMPLETE or trial.value is None:
        return []
    if not abs(trial.value) < _LARGEST:
        return []
    return [Observed(trial=trial, step=step, score=sign * trial.value)]


def _chosen(points: Mapping[int, Sequence[Observed]], limit: int) -> list[Observed]:
    if sum(map(len, points.values())) <= limit:
        return [each for of_trial in points.values() for each in of_trial]
    # Where the optimum is looked for; the newest of the longest may all be worse.
    best = sorted(points, key=lambda number: (-max(each.score for each in points[number]), number))
    longest = sorted(points, key=lambda number: (-points[number][-1].step, -number))
    longest = [*dict.fromkeys([*best[:N_LEADERS], *longest])]
    taken, room = _while_room(longest, points, int(limit * _LONGEST_SHARE))
    left = [number for number in longest if number not in taken]
    # Deterministic for the same trials.
    order = np.random.default_rng(len(left)).permutation(len(left))
    more, _ = _while_room([left[k] for k in order], points, limit - room)
    return [each for number in sorted(taken | more) for each in points[number]]


def _while_room(
    numbers: Sequence[int], points: Mapping[int, Sequence[Observed]], limit: int
) -> tuple[set[int], int]:
    taken: set[int] = set()
    n_points = 0
    for number in numbers:
        if n_points + len(points[number]) > limit:
            break
        taken.add(number)
        n_points += len(points[number])
    return taken, n_points


def _fenced(points: list[Observed]) -> list[Observed]:
    """Clips the values of diverged trainings, which would dominate all others."""
    if not points:
        return points
    fence = fence_of([each.score for each in points])
    return [
        each if each.score >= fence else Observed(trial=each.trial, step=each.step, score=fence)
        for each in points
    ]


def fence_of(scores: Sequence[float]) -> float:
    """The bound to which worse values are clipped.

    It is the outer fence of Tukey's "Exploratory Data Analysis" (1977); minus infinity if the
    middle half of the values is equal.
    """
    low, high = np.quantile(scores, (0.25, 0.75))
    return -math.inf if high == low else float(low - _FENCE * (high - low))


def inputs(
    points: Sequence[Observed], steps: Steps, row_of: Callable[[FrozenTrial], Array]
) -> Array:
    """[n, d + 1], each point's configuration and the place of its step.

    Args:
        points: In any order.
        steps: The range of their steps.
        row_of: [d], a trial's configuration, between 0 and 1.
    """
    rows = np.stack([row_of(each.trial) for each in points])
    return np.column_stack([rows, [steps.place(each.step) for each in points]])
