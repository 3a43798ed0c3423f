"""Where a study will end, from the columns of its trials."""

from __future__ import annotations

from tuner.app.data.trials.columns import TrialColumns
from tuner.queries import forecast as ahead
from tuner.queries.forecast import MIN_TRIALS, Forecast, trials_left

__all__ = ["MIN_TRIALS", "Forecast", "forecast", "trials_left"]


def forecast(
    trials: TrialColumns, place: int, *, is_maximized: bool, n_more: int
) -> Forecast | None:
    """None where too few trials have completed, or all their values are the same.

    Args:
        trials: Of a study, in the order of their numbers.
        place: Of the objective.
        is_maximized: Of the objective.
        n_more: Trials that will end, whatever becomes of them.
    """
    finished = trials.where(trials.is_finished)
    able = finished.where(finished.is_candidate)
    values = able.values[:, place]
    return ahead.forecast(values, len(finished), is_maximized=is_maximized, n_more=n_more)
