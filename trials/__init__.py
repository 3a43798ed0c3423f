"""What training code imports: the trial, its parameters, and `current` for scripts."""

from __future__ import annotations

from trials.context import TrialContext
from trials.current import current
from trials.params import Params

__all__ = ["Params", "TrialContext", "current"]
