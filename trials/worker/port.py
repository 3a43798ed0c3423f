"""The interface between a trial and the dispatcher."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tuner.domain import messages

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


class Link(Protocol):
    """The interface between a trial's context and the dispatcher."""

    def report(self, step: int, values: Mapping[str, float], metrics: Mapping[str, float]) -> None:
        """Reports the values of a step. Never blocks."""

    def remark(self, topic: messages.RemarkTopic, text: str) -> None:
        """Shows a note on this trial's reports. Each topic is shown once."""

    def should_stop(self) -> bool:
        """Whether the trial must end now: it was pruned at a reported step, or stopped.

        A verdict that requests an end never changes back.
        """

    def suggest(self, name: str, distribution: BaseDistribution) -> messages.Json:
        """The value of a parameter that the study file does not declare."""

    def range_in_code(self, name: str, distribution: BaseDistribution) -> None:
        """Reports a range in code for a parameter of the study file."""

    def study_place(self) -> messages.StudyPlace:
        """The study's database."""

    def stop_study(self) -> None:
        """Lets no more trials of the study start."""

    def states_damaged(self, paths: Sequence[Path], step: int | None) -> None:
        """Reports damaged checkpoints; that of `step` was loaded instead, or none."""

    def set_attribute(self, key: str, value: messages.Json) -> None: ...

    def set_constraint(self, key: str, value: float) -> None: ...
