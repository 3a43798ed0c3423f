"""Optuna's median and percentile pruners, without reading every trial per report.

For each report Optuna collects and sorts what all completed trials reported at that step: half a
millisecond at 400 trials and 50 at 50,000. Here these values are kept sorted, and each completed
trial is inserted. The decisions are identical to the last bit.
"""

from __future__ import annotations

import math
from array import array
from bisect import insort
from collections.abc import Sequence

import optuna
from optuna.pruners import BasePruner, MedianPruner, PercentilePruner
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial

from tuner.store.optuna_compat import percentile_settings, storage_of, study_id_of
from tuner.store.optuna_tables.storage import BufferedStorage

_SAME = (MedianPruner, PercentilePruner)


def quicker(pruner: BasePruner) -> BasePruner:
    """A pruner with the same decisions, faster if possible."""
    # Not a subclass of another package's, which may decide otherwise.
    if isinstance(pruner, PercentilePruner) and type(pruner) in _SAME:
        return RankedPruner(pruner)
    return pruner


class StepRanks:
    """Reports of completed trials at each step, sorted. NaN is left out."""

    def __init__(self) -> None:
        self._ranks: dict[int, array[float]] = {}
        #: Number of reports at a step, including NaN.
        self._n_reported: dict[int, int] = {}
        self._n_seen = 0

    def update(self, completed: Sequence[FrozenTrial]) -> None:
        """Adds the trials that have completed since the last call.

        Args:
            completed: All completed trials, in order of completion.
        """
        for trial in completed[self._n_seen :]:
            curve = trial.intermediate_values
            for step in self._ranks:
                if step in curve:
                    self._add(step, curve[step])
            self._n_seen += 1

    def at(self, step: int, completed: Sequence[FrozenTrial]) -> tuple[array[float], int]:
        """Reports at a step, sorted, and their number including NaN."""
        if step not in self._ranks:
            curves = [trial.intermediate_values for trial in completed[: self._n_seen]]
            values = [curve[step] for curve in curves if step in curve]
            self._ranks[step] = array("d", sorted(v for v in values if not math.isnan(v)))
            self._n_reported[step] = len(values)
        return self._ranks[step], self._n_reported[step]

    def _add(self, step: int, value: float) -> None:
        self._n_reported[step] += 1
        if not math.isnan(value):
            insort(self._ranks[step], value)


class RankedPruner(BasePruner):
    """Decides as a median or percentile pruner of Optuna does.

    Args:
        pruner: That one; it still decides for a study in another storage than the dispatcher's.
    """

    def __init__(self, pruner: PercentilePruner) -> None:
        self.pruner = pruner
        self._settings = percentile_settings(pruner)
        self._ranks = StepRanks()

    @property
    def percentile_name(self) -> str:
        """`median`, or `percentile 25`, for messages."""
        percentile = self._settings.percentile
        return "median" if percentile == 50.0 else f"percentile {percentile:g}"

    def bar_at(self, study: optuna.Study, step: int) -> tuple[float, int]:
        """The value to reach at a step, and the number of trials that it is based on."""
        storage = storage_of(study)
        assert isinstance(storage, BufferedStorage)
        completed = storage.completed(study_id_of(study))
        is_maximized = study.direction is StudyDirection.MAXIMIZE
        bar = self._bar(step, completed, is_maximized=is_maximized)
        return bar, self._ranks.at(step, completed)[1]

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        storage = storage_of(study)
        if not isinstance(storage, BufferedStorage):
            return self.pruner.prune(study, trial)
        completed = storage.completed(study_id_of(study))
        if len(completed) < max(1, self._settings.n_startup_trials):
            return False
        curve = trial.intermediate_values
        step = max(curve, default=-1)
        if not curve or not self._is_time(step, curve):
            return False
        is_maximized = study.direction is StudyDirection.MAXIMIZE
        # A NaN is the only number that differs from itself.
        numbers = [value for value in curve.values() if value == value]
        if not numbers:
            return True
        best = max(numbers) if is_maximized else min(numbers)
        bar = self._bar(step, completed, is_maximized=is_maximized)
        return best < bar if is_maximized else best > bar

    def _is_time(self, step: int, curve: dict[int, float]) -> bool:
        warmup = self._settings.n_warmup_steps
        if step < warmup:
            return False
        interval = self._settings.interval_steps
        if interval == 1:
            return True
        begin = (step - warmup) // interval * interval + warmup
        return max((other for other in curve if other != step), default=-1) < begin

    def _bar(self, step: int, completed: Sequence[FrozenTrial], *, is_maximized: bool) -> float:
        """The value to beat; NaN if there is nothing to compare with."""
        self._ranks.update(completed)
        ranks, n_reported = self._ranks.at(step, completed)
        if n_reported < self._settings.n_min_trials:
            return math.nan
        percentile = self._settings.percentile
        return percentile_of(ranks, 100 - percentile if is_maximized else percentile)


def percentile_of(ranks: Sequence[float], percentile: float) -> float:
    """`numpy.nanpercentile` of sorted numbers: linear interpolation, NaN if empty."""
    if not ranks:
        return math.nan
    # Operation by operation as NumPy has it, so that a tie stays one.
    position = (len(ranks) - 1) * (percentile / 100)
    if position >= len(ranks) - 1:
        return ranks[-1] - (ranks[-1] - ranks[-1])
    below = math.floor(position)
    left, right, share = ranks[below], ranks[below + 1], position - below
    difference = right - left
    return right - difference * (1 - share) if share >= 0.5 else left + difference * share
