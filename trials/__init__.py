"""Public names for training code: the trial, its parameters, and `current` for scripts."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuner.trials.context import TrialContext
    from tuner.trials.current_trial import current
    from tuner.trials.params import Params

__all__ = ["Params", "TrialContext", "current"]

if not TYPE_CHECKING:
    _MODULES = {"Params": "params", "TrialContext": "context", "current": "current_trial"}

    def __getattr__(name: str) -> object:
        """Imports a name on first use: the process of a command needs none, and no Optuna."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
