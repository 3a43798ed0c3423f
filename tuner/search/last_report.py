"""What a trial reported last, kept with the trial when one of its attempts has ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

LAST_REPORT_KEY = "tuner:last_report"
"""Attribute of a trial: the attempt, its last step, and the values of all objectives there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastReport:
    """The last report of an attempt whose end its dispatcher has seen: nothing came after it.

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
        """The one among a trial's attributes; None if there is none."""
        match attributes.get(LAST_REPORT_KEY):
            case [int(attempt), int(step), dict(values)]:
                return cls(attempt=attempt, step=step, values=values)
        return None

    def as_json(self) -> list[int | dict[str, float]]:
        """The attribute's value."""
        return [self.attempt, self.step, dict(self.values)]
