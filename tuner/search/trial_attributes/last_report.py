"""The last report of a trial, stored when one of its attempts has ended."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from optuna.study import StudyDirection

from tuner.search.pruners.step_checks import StepCounts
from tuner.store.optuna_tables.storage import BufferedStorage
from tuner.store.records.population_rows import COPY_KEY

LAST_REPORT_KEY = "tuner:last_report"
"""Attribute of a trial: the attempt, its last step, and the values of all objectives there."""

#: Marks a trial that had nothing left to do and was restarted without its checkpoint.
_STARTED_OVER_KEY = "tuner:started_over"


@dataclass(frozen=True, slots=True, kw_only=True)
class LastReport:
    """The last report of an attempt whose end its dispatcher has seen: no report followed.

    Args:
        attempt: Number of the attempt.
        step: Step of the report.
        values: Values of the objectives, by name.
    """

    attempt: int
    step: int
    values: Mapping[str, float]

    @classmethod
    def of(cls, attributes: Mapping[str, object]) -> LastReport | None:
        """The last report in a trial's attributes; None if there is none."""
        match attributes.get(LAST_REPORT_KEY):
            case [int(attempt), int(step), dict(values)]:
                return cls(attempt=attempt, step=step, values=values)
        return None

    def as_json(self) -> list[int | dict[str, float]]:
        """The attribute's value."""
        return [self.attempt, self.step, dict(self.values)]


class LastReports:
    """The last reports of the attempts of each trial, and the trials that had to start over.

    Args:
        storage: Holds the study.
        steps: Is notified of trials that start over.
        directions: Directions of the objectives.
    """

    def __init__(
        self, storage: BufferedStorage, steps: StepCounts, directions: Sequence[StudyDirection]
    ) -> None:
        self._storage = storage
        self._steps = steps
        self._directions = directions

    def best(self, trial_id: int) -> float | None:
        """The best value of a trial's curve, of all its attempts.

        Returns:
            None if no value was reported, or if the study has several objectives and thus no curve.
        """
        curve = self._storage.get_trial(trial_id).intermediate_values
        values = [value for value in curve.values() if not math.isnan(value)]
        if not values or len(self._directions) > 1:
            return None
        return max(values) if self._directions[0] is StudyDirection.MAXIMIZE else min(values)

    def record(self, trial_id: int, last: LastReport) -> None:
        """Stores a trial's last report, before it waits for another attempt."""
        self._storage.set_trial_system_attr(trial_id, LAST_REPORT_KEY, last.as_json())

    def read(self, trial_id: int) -> LastReport | None:
        """The last report of the newest attempt that reported and whose end was seen."""
        return LastReport.of(self._storage.get_trial(trial_id).system_attrs)

    def start_over_once(self, trial_id: int) -> bool:
        """Records that a trial starts without its checkpoint; returns whether it may.

        A trial may start over once. A copy, which begins from the checkpoint of another trial,
        never may.
        """
        attributes = self._storage.get_trial(trial_id).system_attrs
        if _STARTED_OVER_KEY in attributes or COPY_KEY in attributes:
            return False
        self._storage.set_trial_system_attr(trial_id, _STARTED_OVER_KEY, True)
        self._steps.starts_over(trial_id)
        return True
