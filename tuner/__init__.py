"""Hyperparameter tuning that owns your GPUs."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuner.api.start import run, tune
    from tuner.api.study import Study, StudyInterrupted
    from tuner.queries.results.best import BestConfiguration, load_best, load_top
    from tuner.queries.results.schedule import Schedule, load_schedule
    from tuner.trials import ddp
    from tuner.trials.context import TrialContext
    from tuner.trials.current_trial import current
    from tuner.trials.params import Params

__all__ = [
    "BestConfiguration",
    "Params",
    "Schedule",
    "Study",
    "StudyInterrupted",
    "TrialContext",
    "current",
    "ddp",
    "load_best",
    "load_schedule",
    "load_top",
    "run",
    "tune",
]

_MODULES = {
    "tuner.api.start": ("run", "tune"),
    "tuner.api.study": ("Study", "StudyInterrupted"),
    "tuner.queries.results.best": ("BestConfiguration", "load_best", "load_top"),
    "tuner.queries.results.schedule": ("Schedule", "load_schedule"),
    "tuner.trials": ("Params", "TrialContext", "current"),
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Imports on first use: a training process must not pay for the database."""
        if name == "ddp":
            return importlib.import_module("tuner.trials.ddp")
        for module, names in _MODULES.items():
            if name in names:
                return getattr(importlib.import_module(module), name)
        raise AttributeError(f"module 'tuner' has no attribute {name!r}")
