"""What a trial needs from whichever dispatcher runs its study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from optuna.distributions import BaseDistribution

from tuner.domain import messages


class Link(Protocol):
    """What a trial's context needs from whichever dispatcher runs the study."""

    def report(self, step: int, values: Mapping[str, float], metrics: Mapping[str, float]) -> None:
        """Hands over the values of a step. Never waits."""

    def remark(self, topic: messages.RemarkTopic, text: str) -> None:
        """Shows users a note of this trial's reports. They hear it once of each topic."""

    def should_stop(self) -> bool:
        """Whether the trial shall end now: pruned at a step that it reported, or told to stop.

        A verdict that asks for an end stays until it is asked for, and after that.
        """

    def suggest(self, name: str, distribution: BaseDistribution) -> messages.Json:
        """The value of a parameter that the study file does not declare."""

    def range_in_code(self, name: str, distribution: BaseDistribution) -> None:
        """Tells of a range that code has for a parameter of the study file."""

    def study_place(self) -> messages.StudyPlace:
        """Where the study is stored."""

    def stop_study(self) -> None:
        """Lets no more trials of the study start."""

    def states_damaged(self, paths: Sequence[Path], step: int | None) -> None:
        """These checkpoints are damaged; that of `step` was loaded instead, or none."""

    def set_attribute(self, key: str, value: messages.Json) -> None: ...

    def set_constraint(self, key: str, value: float) -> None: ...
