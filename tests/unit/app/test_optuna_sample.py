"""A bounded study in memory for Optuna's own figures, and what they show."""

from __future__ import annotations

import numpy as np
import optuna
import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

from tests.unit.app.columns import LOSS, trials
from tuner.app.charts.parameters import MAX_TRIALS, Kind, importance_figure, parameter_figure
from tuner.app.data.trials.optuna_sample import (
    importances,
    pick_rows,
    shared_names,
    spread_rows,
    study_of,
)

SPACE: dict[str, BaseDistribution] = {"x": FloatDistribution(0, 1), "y": FloatDistribution(0, 1)}


def a_study(n: int = 60, **space: BaseDistribution) -> optuna.Study:
    random = np.random.default_rng(0)
    x, y = random.uniform(size=n), random.uniform(size=n)
    columns = trials((x + 0.01 * y).tolist())
    params = {100 + i: {"x": float(x[i]), "y": float(y[i]), "epochs": 20} for i in range(n)}
    return study_of(columns, np.arange(n), LOSS, 0, params, {**SPACE, **space})


def test_the_parameter_that_matters_is_the_most_important() -> None:
    found = importances(a_study())
    assert list(found) == ["x", "y"]
    assert found["x"] > 0.8
    assert list(importance_figure(found, revision="a").data[0].y) == ["y", "x"]


def test_constants_and_what_the_space_refuses_are_left_out() -> None:
    study = a_study(y=CategoricalDistribution(["a"]))
    assert shared_names(study) == ["x"]


def test_nothing_is_important_where_all_values_are_the_same() -> None:
    params = {100 + i: {"x": i / 30} for i in range(30)}
    study = study_of(trials([1.0] * 30), np.arange(30), LOSS, 0, params, SPACE)
    assert importances(study) == {}


@pytest.mark.parametrize("kind", list(Kind), ids=lambda kind: kind.name.lower())
def test_figures_of_optuna_name_the_objective(kind: Kind) -> None:
    figure = parameter_figure(kind, a_study(), ["x", "y"], "loss (minimize)", revision="a")
    assert figure.layout.uirevision.startswith("a")
    assert "loss (minimize)" in figure.to_json()
    assert MAX_TRIALS[kind] <= 1000


def test_of_many_trials_the_best_and_the_newest_are_drawn() -> None:
    columns = trials(list(range(100)), words=["completed"] * 99 + ["pruned"])
    rows = pick_rows(columns, 0, is_maximized=False, most=10)
    assert rows.tolist() == [0, 1, 2, 92, 93, 94, 95, 96, 97, 98]
    assert pick_rows(columns, 0, is_maximized=True, most=500).tolist() == list(range(99))
    assert spread_rows(columns, 3).tolist() == [0, 49, 98]
