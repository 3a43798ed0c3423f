"""Public names for training code: the trial, its parameters, and `current` for scripts."""

from __future__ import annotations

from tuner.trials.context import TrialContext
from tuner.trials.current import current
from tuner.trials.params import Params

__all__ = ["Params", "TrialContext", "current"]
