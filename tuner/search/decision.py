"""What a report leads to."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.messages import Action


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What shall become of a trial after a report, and why."""

    action: Action
    reason: str = ""
