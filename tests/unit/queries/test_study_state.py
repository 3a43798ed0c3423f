"""How a study stands, and what `tuner status` answers to a script."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from optuna.study import StudyDirection
from optuna.trial import TrialState

from tuner.domain.budget import Budget, Spent, TrialUse
from tuner.queries.dispatchers import StoredDispatcher
from tuner.queries.studies import Objective, StudySummary
from tuner.queries.study_state import EXIT_SILENT, EXIT_STOPPED, Grid, Standing, judge

NOW = datetime(2026, 3, 1, tzinfo=UTC)
ALIVE = StoredDispatcher(
    id=1,
    study_id=1,
    host="node1",
    pid=7,
    started_at=NOW,
    beat_at=NOW,
    ended_at=None,
    end_reason="",
    is_alive=True,
)


def judged(
    budget: Budget,
    *,
    completed: int = 0,
    failed: int = 0,
    time_s: float = 0,
    grid: Grid | None = None,
    trial: TrialUse | None = None,
    dispatchers: tuple[StoredDispatcher, ...] = (),
    is_population_over: bool = False,
) -> tuple[Standing, str]:
    counts = {TrialState.COMPLETE: completed, TrialState.FAIL: failed}
    study = StudySummary(
        id=1,
        name="s",
        objectives=(Objective(name="value", direction=StudyDirection.MINIMIZE),),
        trials={state: counts.get(state, 0) for state in TrialState},
        n_paused=0,
        best={},
        dispatchers=dispatchers,
        started_at=None,
        active_at=None,
    )
    spent = Spent(trials=completed + failed, time_s=time_s, device_s=0)
    return judge(study, budget, spent, grid, trial, is_population_over=is_population_over)


def test_study_with_a_living_dispatcher_runs() -> None:
    found = judged(Budget(trials=1), completed=1, dispatchers=(ALIVE,))
    assert found == (Standing.RUNNING, "node1 (pid 7)")


def test_study_whose_dispatchers_are_all_silent_does_not_run() -> None:
    silent = replace(ALIVE, pid=8, is_silent=True)
    found = judged(Budget(trials=1), dispatchers=(silent,))
    assert found[0] is Standing.SILENT
    assert found[1].startswith("node1 (pid 8) has not written anything for a minute")
    assert judged(Budget(trials=1), dispatchers=(ALIVE, silent))[0] is Standing.RUNNING


def test_study_whose_budget_is_reached_has_finished() -> None:
    found = judged(Budget(trials=2), completed=1, failed=1)
    assert found == (Standing.FINISHED, "budget reached: 2 trials")
    assert judged(Budget(time_s=10), completed=1, time_s=11)[0] is Standing.FINISHED


def test_study_of_failures_alone_has_failed() -> None:
    found = judged(Budget(trials=2), failed=2)
    assert found == (Standing.FAILED, "budget reached: 2 trials; every trial has failed")


@pytest.mark.parametrize(
    ("budget", "reason"),
    [
        (Budget(trials=5), "no dispatcher is alive, 1 of 5 trials are done"),
        (Budget(), "no dispatcher is alive, and the budget is open"),
        (Budget(time_s=10), "no dispatcher is alive, and the budget is not reached"),
    ],
    ids=["trials", "open", "time"],
)
def test_study_before_its_end_is_stopped(budget: Budget, reason: str) -> None:
    assert judged(budget, completed=1) == (Standing.STOPPED, reason)


def test_grid_that_was_tried_is_an_end() -> None:
    assert judged(Budget(), completed=4, grid=Grid(n_points=4, n_tried=4))[0] is Standing.FINISHED
    assert judged(Budget(), completed=3, grid=Grid(n_points=4, n_tried=3))[0] is Standing.STOPPED


def test_a_population_at_its_end_is_an_end_without_a_budget() -> None:
    found = judged(Budget(), completed=3, is_population_over=True)
    assert found == (Standing.FINISHED, "the population has come to its end")
    assert judged(Budget(), failed=3, is_population_over=True)[0] is Standing.FAILED


def test_exit_codes_are_fixed() -> None:
    assert {each: each.exit_code for each in Standing} == {
        Standing.RUNNING: 0,
        Standing.FINISHED: 0,
        Standing.FAILED: 1,
        Standing.STOPPED: EXIT_STOPPED,
        Standing.SILENT: EXIT_SILENT,
        Standing.UNKNOWN: EXIT_STOPPED,
    }
    assert (EXIT_STOPPED, EXIT_SILENT) == (3, 4)


def test_too_little_for_one_more_trial_is_the_end() -> None:
    study = judged(Budget(time_s=100), completed=3, time_s=90)
    assert study[0] is Standing.STOPPED
    found = judged(Budget(time_s=100), completed=3, time_s=90, trial=TrialUse(time_s=20.0))
    assert found == (
        Standing.FINISHED,
        "budget reached: 10 s of 100 s are left, and a trial takes 20 s",
    )
