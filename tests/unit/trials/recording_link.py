"""A link with nobody at its other end: it keeps what it is told, and says what the test sets.

`test_link.py` holds it to the same contract as the real one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from optuna.distributions import BaseDistribution

from tuner.domain.attempt import AttemptId
from tuner.domain.messages import Action, Assign, Json, RemarkTopic, StudyPlace, Verdict

ATTEMPT = AttemptId("7.2")


@dataclass(kw_only=True)
class RecordingLink:
    """Keeps reports, attributes and constraints; answers suggestions from a mapping."""

    #: Where a parameter is not in here, it is refused.
    suggestions: Mapping[str, Json] = field(default_factory=dict)
    verdict: Verdict = field(
        default_factory=lambda: Verdict(attempt_id=ATTEMPT, step=-1, action=Action.CONTINUE)
    )
    assign: Assign | None = None
    reports: list[tuple[int, dict[str, float], dict[str, float]]] = field(default_factory=list)
    asked: list[tuple[str, BaseDistribution]] = field(default_factory=list)
    attributes: dict[str, Json] = field(default_factory=dict)
    constraints: dict[str, float] = field(default_factory=dict)
    is_termination_requested: bool = False
    #: Names of checkpoints that were found damaged, and the step that was loaded instead.
    damaged: list[tuple[list[str], int | None]] = field(default_factory=list)

    #: Ranges that code has for declared parameters.
    ranges: list[tuple[str, BaseDistribution]] = field(default_factory=list)
    #: URL of the study's database.
    storage: str = ""
    is_study_stopped: bool = False
    remarks: list[tuple[RemarkTopic, str]] = field(default_factory=list)

    def decide(self, action: Action, reason: str = "") -> None:
        """What the trial hears from now on."""
        self.verdict = Verdict(attempt_id=ATTEMPT, step=-1, action=action, reason=reason)

    def report(self, step: int, values: Mapping[str, float], metrics: Mapping[str, float]) -> None:
        self.reports.append((step, dict(values), dict(metrics)))

    def should_stop(self) -> bool:
        return self.verdict.action is not Action.CONTINUE

    def suggest(self, name: str, distribution: BaseDistribution) -> Json:
        """
        Raises:
            ValueError: If the test gave no value for it.
        """
        self.asked.append((name, distribution))
        if name not in self.suggestions:
            raise ValueError(f"Nobody suggests {name}.")
        return self.suggestions[name]

    def states_damaged(self, paths: Sequence[Path], step: int | None) -> None:
        self.damaged.append(([path.name for path in paths], step))

    def range_in_code(self, name: str, distribution: BaseDistribution) -> None:
        self.ranges.append((name, distribution))

    def study_place(self) -> StudyPlace:
        return StudyPlace(attempt_id=ATTEMPT, study="small", storage=self.storage)

    def stop_study(self) -> None:
        self.is_study_stopped = True

    def remark(self, topic: RemarkTopic, text: str) -> None:
        self.remarks.append((topic, text))

    def set_attribute(self, key: str, value: Json) -> None:
        self.attributes[key] = value

    def set_constraint(self, key: str, value: float) -> None:
        self.constraints[key] = value
