"""Forecast of a study's final value, from the columns of its trials."""

from __future__ import annotations

from tuner.app.data.trials.columns import TrialColumns
from tuner.queries import forecast as ahead
from tuner.queries.forecast import MIN_TRIALS, Forecast, trials_left

__all__ = ["MIN_TRIALS", "Forecast", "forecast", "trials_left"]


def forecast(
    trials: TrialColumns, place: int, *, is_maximized: bool, n_more: int
) -> Forecast | None:
    """A forecast; None if too few trials have completed, or all their values are equal.

    Args:
        trials: A study's trials, in the order of their numbers.
        place: Index of the objective.
        is_maximized: Whether the objective is maximized.
        n_more: Number of trials still to end, in any state.
    """
    finished = trials.where(trials.is_finished)
    able = finished.where(finished.is_candidate)
    values = able.values[:, place]
    return ahead.forecast(values, len(finished), is_maximized=is_maximized, n_more=n_more)
