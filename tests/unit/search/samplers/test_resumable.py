"""Grids and quasi-random sequences in a plain Optuna study, and what counts as a point."""

from __future__ import annotations

import itertools
import math
import warnings

import optuna
import pytest
from optuna.exceptions import ExperimentalWarning
from optuna.trial import TrialState

from tuner.search.samplers.grid_points import GridPoints
from tuner.search.samplers.resumable import GridSampler, QMCSampler

GRID = {"a": [1, 2, 3], "b": ["x", "y"]}
POINTS = set(itertools.product(*GRID.values()))


@pytest.fixture(autouse=True)
def quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def objective(trial: optuna.Trial) -> float:
    return trial.suggest_int("a", 1, 3) + len(trial.suggest_categorical("b", ["x", "y"]))


def points_of(study: optuna.Study) -> list[tuple[int, str]]:
    return [(trial.params["a"], trial.params["b"]) for trial in study.trials]


def test_another_seed_goes_on_with_the_points_that_are_left() -> None:
    study = optuna.create_study(sampler=GridSampler(GRID, seed=1))
    study.optimize(objective, n_trials=3)
    study.sampler = GridSampler(GRID, seed=2)
    study.optimize(objective, n_trials=100)
    assert (len(study.trials), set(points_of(study))) == (6, POINTS)


def test_a_grid_that_has_grown_tries_what_is_new() -> None:
    study = optuna.create_study(sampler=GridSampler({**GRID, "a": [1, 2]}, seed=1))
    study.optimize(objective, n_trials=100)
    assert len(study.trials) == 4
    study.sampler = GridSampler(GRID, seed=1)
    study.optimize(objective, n_trials=100)
    assert (len(study.trials), set(points_of(study))) == (6, POINTS)


def test_trials_of_optunas_own_grid_count() -> None:
    study = optuna.create_study(sampler=optuna.samplers.GridSampler(GRID, seed=1))
    study.optimize(objective, n_trials=4)
    study.sampler = GridSampler(GRID, seed=5)
    study.optimize(objective, n_trials=100)
    assert (len(study.trials), set(points_of(study))) == (6, POINTS)


def test_trials_that_run_and_those_that_failed_count() -> None:
    study = optuna.create_study(sampler=GridSampler(GRID, seed=1))
    running, failed = study.ask(), study.ask()
    objective(running), objective(failed)
    study.tell(failed, state=TrialState.FAIL)
    study.optimize(objective, n_trials=3)
    study.tell(running, 1.0)
    study.optimize(objective, n_trials=100)
    assert (len(study.trials), set(points_of(study))) == (6, POINTS)


def test_an_enqueued_trial_off_the_grid_takes_no_point() -> None:
    study = optuna.create_study(sampler=GridSampler({"a": [1, 3], "b": ["x"]}, seed=1))
    study.enqueue_trial({"a": 2})
    study.optimize(objective, n_trials=100)
    assert points_of(study)[0] == (2, "x")
    assert sorted(points_of(study)[1:]) == [(1, "x"), (3, "x")]


def test_a_parameter_that_the_grid_does_not_have_is_named() -> None:
    study = optuna.create_study(sampler=GridSampler({"a": [1]}, seed=1))
    with pytest.raises(ValueError, match="'b' is not in the given grid"):
        study.optimize(objective, n_trials=1)


def test_values_are_told_apart_as_their_types_are() -> None:
    points = GridPoints(["v"], [[1], [True], ["1"], [None], [math.nan], [1.0]])
    assert len(points) == 5  # 1 and 1.0 are one value of a parameter.
    for value in (True, math.nan, 1.0):
        assert points.note({"v": value})
    assert points.n_tried == 3
    assert points.next() == {"v": "1"}
    assert not points.note({"w": 1})


@pytest.mark.parametrize("qmc_type", ["sobol", "halton"])
@pytest.mark.parametrize("scramble", [True, False])
def test_a_sequence_has_the_place_that_optuna_gives_it(qmc_type: str, scramble: bool) -> None:
    """A study that Optuna's own sampler has begun goes on where that one ended."""
    warnings.simplefilter("ignore", ExperimentalWarning)
    arguments = {"qmc_type": qmc_type, "scramble": scramble, "seed": 3}
    study = optuna.create_study(sampler=optuna.samplers.QMCSampler(**arguments))
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=4)
    (key,) = [
        each
        for each in study._storage.get_study_system_attrs(study._study_id)
        if each.startswith("qmc:")
    ]
    space = {"x": optuna.distributions.FloatDistribution(0, 1)}
    assert QMCSampler(**arguments)._key(space) == key
