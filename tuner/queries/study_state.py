"""State of a study: running, finished, or stopped early. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from optuna.trial import TrialState

from tuner.domain.budget import Budget, Spent, TrialUse
from tuner.errors import EXIT_BUDGET_REACHED, EXIT_STUDY_FAILED
from tuner.queries.studies import StudySummary
from tuner.store.records.population_rows import POPULATION_IS_OVER

EXIT_STOPPED = 3
EXIT_SILENT = 4


class Standing(Enum):
    """States that `tuner status` reports to a script."""

    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"
    #: A dispatcher works on it, but has missed heartbeats.
    SILENT = "silent"
    #: Run by a program of Optuna alone, which leaves no sign of life.
    UNKNOWN = "unknown"

    @property
    def exit_code(self) -> int:
        match self:
            case Standing.RUNNING | Standing.FINISHED:
                return EXIT_BUDGET_REACHED
            case Standing.FAILED:
                return EXIT_STUDY_FAILED
            case Standing.STOPPED | Standing.UNKNOWN:
                return EXIT_STOPPED
            case Standing.SILENT:
                return EXIT_SILENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Progress of a grid search."""

    n_points: int
    n_tried: int


def judge(
    study: StudySummary,
    budget: Budget,
    spent: Spent,
    grid: Grid | None,
    trial: TrialUse | None = None,
    *,
    is_population_over: bool = False,
) -> tuple[Standing, str]:
    """State of a study, and the reason; `trial` is the usual use of a trial, if known."""
    places = ", ".join(f"{each.host} (pid {each.pid})" for each in study.dispatchers)
    if study.dispatchers and all(each.is_silent for each in study.dispatchers):
        reason = "has not written anything for a minute: it hangs, or cannot reach the database"
        return Standing.SILENT, f"{places} {reason}"
    if study.dispatchers:
        return Standing.RUNNING, places
    if not study.is_ours and (n := study.trials[TrialState.RUNNING]):
        marked = "1 trial is" if n == 1 else f"{n} trials are"
        return Standing.UNKNOWN, (
            f"{marked} marked as running by a program without the tuner, which may be alive or not"
        )
    # A trial that has begun is spent, but the study is not at its end before it is over.
    reason = _end_reason(budget, replace(spent, trials=study.n_finished), grid, trial)
    if is_population_over:
        reason = POPULATION_IS_OVER
    if not reason:
        return Standing.STOPPED, f"no dispatcher is alive, {_left(study, budget)}"
    is_hopeless = not (study.trials[TrialState.COMPLETE] or study.trials[TrialState.PRUNED])
    if is_hopeless and study.trials[TrialState.FAIL]:
        return Standing.FAILED, f"{reason}; every trial has failed"
    return Standing.FINISHED, reason


def _end_reason(budget: Budget, spent: Spent, grid: Grid | None, trial: TrialUse | None) -> str:
    if grid is not None and grid.n_tried >= grid.n_points:
        return "every configuration of the space was tried"
    reached = budget.reached(spent)
    if reached is None and trial is not None:
        reached = budget.too_little(spent, trial)
    return f"budget reached: {reached}" if reached else ""


def _left(study: StudySummary, budget: Budget) -> str:
    if budget.trials is not None:
        return f"{study.n_finished} of {budget.trials} trials are done"
    if budget == Budget():
        return "and the budget is open"
    return "and the budget is not reached"
