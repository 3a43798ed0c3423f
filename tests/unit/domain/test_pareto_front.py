"""The front follows each new trial as if all were compared anew."""

from __future__ import annotations

import random

import optuna
import pytest
from optuna.study import StudyDirection
from optuna.trial import create_trial

from tuner.domain.pareto_front import ParetoFront

UP, DOWN = StudyDirection.MAXIMIZE, StudyDirection.MINIMIZE


@pytest.mark.parametrize(
    ("values", "is_on_it"),
    [
        pytest.param((0.5, 5.0), True, id="equal"),
        pytest.param((0.6, 9.0), True, id="better-in-one"),
        pytest.param((0.6, 4.0), True, id="better-in-both"),
        pytest.param((0.5, 6.0), False, id="worse-in-one"),
        pytest.param((0.4, 6.0), False, id="worse-in-both"),
    ],
)
def test_new_trial_is_compared_in_each_direction(
    values: tuple[float, float], is_on_it: bool
) -> None:
    front = ParetoFront([UP, DOWN])
    assert front.add((0.5, 5.0))
    assert front.add(values) is is_on_it


@pytest.mark.parametrize("directions", [(UP, DOWN), (DOWN, DOWN, UP)], ids=["two", "three"])
def test_front_is_that_of_optuna_after_each_trial(directions: tuple[StudyDirection, ...]) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study, front = optuna.create_study(directions=directions), ParetoFront(directions)
    drawn = random.Random(0)
    for number in range(80):
        values = [drawn.randrange(6) for _ in directions]
        study.add_trial(create_trial(values=values))
        on_front = {trial.number for trial in study.best_trials}
        assert front.add(values) is (number in on_front)
