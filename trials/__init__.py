"""What runs inside a training process: the trial's context, checkpoints, and example programs."""

from __future__ import annotations

from trials.context import TrialContext
from trials.current import current
from trials.params import Params

__all__ = ["Params", "TrialContext", "current"]
