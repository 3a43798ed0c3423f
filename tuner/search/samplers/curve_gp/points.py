"""What a study's trainings have reported, as points of configuration and step. No I/O.

A curve tells little between one step and the next: of each some ten points stand for it, evenly
spaced over the logarithm of the step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from optuna.trial import FrozenTrial, TrialState

from tuner.search.trial_attributes.vector_curve import CURVE_KEY, is_next

Array = NDArray[np.float64]

#: Candidates are made near so many of the best.
N_LEADERS = 5
#: Of all points at most this share is of the longest curves, the rest of a sample of the others.
_LONGEST_SHARE = 0.7
#: Values that are so many times the distance of the quartiles below them count as that bad.
_FENCE = 3.0
#: What is larger is as good as infinite.
_LARGEST = 1e100


def is_informative(trial: FrozenTrial) -> bool:
    """Whether a trial says anything about its configuration."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One point of one trial's curve."""

    trial: FrozenTrial
    step: int
    #: The larger the better.
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Where a step lies between the first (0) and the last (1) that any trial has come to."""

    first: int
    last: int

    def place(self, step: int) -> float:
        if self.last == self.first:
            return 1.0
        return math.log(step - self.first + 1) / math.log(self.last - self.first + 1)


def observed(
    trials: Sequence[FrozenTrial], *, is_maximized: bool, limit: int
) -> tuple[list[Observed], Steps]:
    """
    Args:
        trials: With their reports.
        is_maximized: Whether larger values are better.
        limit: At most so many points: those of the best trials and of the longest curves first.

    Returns:
        The points, with the worst brought near the others, and the range of their steps.
    """
    sign = 1.0 if is_maximized else -1.0
    curves = [(trial, thinned(trial)) for trial in trials]
    ends = [step for _, curve in curves for step in curve]
    steps = Steps(first=min(ends, default=0), last=max(ends, default=0))
    points = {
        trial.number: [
            Observed(trial=trial, step=step, score=sign * value) for step, value in curve.items()
        ]
        or _end_of(trial, steps.last, sign)
        for trial, curve in curves
    }
    points = {number: of_trial for number, of_trial in points.items() if of_trial}
    return _fenced(_chosen(points, limit)), steps


def _end_of(trial: FrozenTrial, step: int, sign: float) -> list[Observed]:
    """Of a program that reports nothing on its way."""
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
    # The same ones for the same trials, whoever asks.
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
    """Diverged trainings are bad, but how bad says nothing and would drown all others."""
    if not points:
        return points
    fence = fence_of([each.score for each in points])
    return [
        each if each.score >= fence else Observed(trial=each.trial, step=each.step, score=fence)
        for each in points
    ]


def fence_of(scores: Sequence[float]) -> float:
    """What is worse counts as that bad (the outer fence of Tukey's "Exploratory Data Analysis",
    1977); minus infinity where the middle half of them is one and the same."""
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
    return np.stack([np.append(row_of(each.trial), steps.place(each.step)) for each in points])
