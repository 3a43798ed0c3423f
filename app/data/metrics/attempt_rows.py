"""Metrics of the attempts of a trial, joined to one curve for each metric."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby

#: By metric, by step; None for a report that was no finite number.
MetricsByStep = dict[str, dict[int, float | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricReport:
    """One row of `tuner_metrics`."""

    trial_id: int
    #: From 1, in the order of the attempts.
    attempt: int
    name: str
    step: int
    value: float | None


@dataclass(slots=True, kw_only=True)
class _Joined:
    by_name: MetricsByStep = field(default_factory=dict)

    def add(self, reports: Iterable[MetricReport]) -> None:
        """Adds the next attempt. What earlier ones reported from its first step on is void."""
        own = list(reports)
        first = min(each.step for each in own)
        for curve in self.by_name.values():
            for step in [step for step in curve if step >= first]:
                del curve[step]
        for each in own:
            self.by_name.setdefault(each.name, {})[each.step] = each.value


def join_attempts(reports: Iterable[MetricReport]) -> dict[int, MetricsByStep]:
    """Curves by trial id, joined as for the objective.

    An attempt that restarts from an earlier step replaces later reports.

    Args:
        reports: Reports, those of a trial in the order of its attempts.
    """
    found: dict[int, _Joined] = {}
    for (trial_id, _), own in groupby(reports, key=lambda each: (each.trial_id, each.attempt)):
        found.setdefault(trial_id, _Joined()).add(own)
    return {
        trial_id: {name: curve for name, curve in joined.by_name.items() if curve}
        for trial_id, joined in found.items()
    }
