"""Curves of several objectives are noted with the trial: some of their reports."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from optuna.pruners import NopPruner
from optuna.samplers import RandomSampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from tests.databases import new_database
from tuner.config import Direction
from tuner.search.study import StudySearch
from tuner.search.trial_attributes.vector_curve import (
    CURVE_KEY,
    LAST_STEP_KEY,
    curve_of,
    has_diverged,
    of_one_objective,
)
from tuner.store.connection.database import Database, open_database

OBJECTIVES = {"accuracy": Direction.MAXIMIZE, "cost": Direction.MINIMIZE}


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = open_database(new_database(tmp_path))
    yield opened
    opened.close()


def searching(database: Database) -> StudySearch:
    return StudySearch(
        database.storage,
        "study",
        objectives=OBJECTIVES,
        space=None,
        sampler=RandomSampler(0),
        pruner=NopPruner(),
    )


def report(search: StudySearch, trial_id: int, step: int, accuracy: float) -> None:
    search.report(trial_id, step, {"accuracy": accuracy, "cost": 1.0})


def noted(search: StudySearch, trial_id: int) -> dict[int, list[float]]:
    trial = search.study.get_trials()[trial_id - 1]
    return {step: [*values] for step, values in curve_of(trial).items()}


def test_steps_that_are_far_enough_apart_are_kept_by_any_pruner(database: Database) -> None:
    search = searching(database)
    asked = search.ask()
    assert asked is not None
    for step in range(1, 31):
        report(search, asked.trial_id, step, step / 100)
    assert [*noted(search, asked.trial_id)] == [1, 2, 3, 5, 8, 12, 18, 27]
    assert noted(search, asked.trial_id)[27] == [0.27, 1.0]
    database.storage.flush()
    again = searching(database)
    assert [*noted(again, asked.trial_id)] == [1, 2, 3, 5, 8, 12, 18, 27]


def test_what_is_reported_again_replaces_what_was_reported(database: Database) -> None:
    search = searching(database)
    asked = search.ask()
    assert asked is not None
    for step in (1, 2, 3, 4, 5, 6):
        report(search, asked.trial_id, step, 0.1)
    report(search, asked.trial_id, 2, 0.2)
    assert noted(search, asked.trial_id) == {1: [0.1, 1.0], 2: [0.2, 1.0]}


def test_a_report_that_lacks_an_objective_is_not_noted(database: Database) -> None:
    search = searching(database)
    asked = search.ask()
    assert asked is not None
    search.report(asked.trial_id, 1, {"accuracy": 0.5})
    assert noted(search, asked.trial_id) == {}


def test_what_is_no_number_is_always_noted(database: Database) -> None:
    search = searching(database)
    asked = search.ask()
    assert asked is not None
    for step in range(1, 8):
        report(search, asked.trial_id, step, math.nan if step == 7 else 0.1)
    trial = search.study.get_trials()[0]
    assert max(curve_of(trial)) == 7
    assert has_diverged(trial)


def a_trial(curve: object, *, values: list[float] | None = None) -> FrozenTrial:
    return create_trial(
        state=TrialState.COMPLETE if values else TrialState.PRUNED,
        values=values,
        system_attrs={CURVE_KEY: curve, LAST_STEP_KEY: 9},
    )


def test_a_trial_is_seen_as_one_of_one_objective() -> None:
    pruned = of_one_objective(a_trial([[1, [0.1, 7.0]], [3, [0.3, 7.0]]]), 0)
    assert pruned.intermediate_values == {1: 0.1, 3: 0.3}
    assert pruned.value is None
    whole = a_trial([[1, [0.1, 7.0]], [8, [0.3, 7.0]]], values=[0.4, 8.0])
    cost = of_one_objective(whole, 1)
    assert cost.intermediate_values == {1: 7.0, 8: 7.0, 9: 8.0}
    assert cost.value == 8.0
    assert whole.values == [0.4, 8.0], "the trial itself stays as it is"
