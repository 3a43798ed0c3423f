"""The trial that this process evaluates, if any."""

from __future__ import annotations

from tuner.trials.context import TrialContext

context: TrialContext | None = None
