"""Hyperparameter tuning that owns your GPUs: the results of a study, in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuner.results.best import BestConfiguration, load_best, load_top
    from tuner.results.schedule import Schedule, load_schedule

__all__ = ["BestConfiguration", "Schedule", "load_best", "load_schedule", "load_top"]

_OF_SCHEDULE = ("Schedule", "load_schedule")


def __getattr__(name: str) -> object:
    """Imports on first use: a training process must not pay for the database."""
    if name in _OF_SCHEDULE:
        from tuner.results import schedule

        return getattr(schedule, name)
    if name in __all__:
        from tuner.results import best

        return getattr(best, name)
    raise AttributeError(f"module 'tuner' has no attribute {name!r}")
