"""The space of a program that suggests its parameters itself, as its trials show it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import optuna
import pytest
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial, TrialState

from tuner.search.samplers.curve_gp.inferred_space import inferred_space
from tuner.search.samplers.curve_gp.sampler import CurveGPSampler

SPACE: Mapping[str, BaseDistribution] = {
    "optimizer": CategoricalDistribution(["adam", "sgd", "lion"]),
    "layers": IntDistribution(1, 4),
    "lr": FloatDistribution(1e-4, 1.0, log=True),
    "momentum": FloatDistribution(0.0, 1.0),
    "units_3": IntDistribution(8, 64),
    "units_4": IntDistribution(8, 64),
}


def a_trial(
    params: Mapping[str, Any],
    *,
    state: TrialState = TrialState.COMPLETE,
    space: Mapping[str, BaseDistribution] = SPACE,
) -> FrozenTrial:
    values = [1.0] if state is TrialState.COMPLETE else None
    distributions = {name: space[name] for name in params}
    return optuna.trial.create_trial(
        state=state, params=dict(params), distributions=distributions, values=values
    )


def conditions(trials: list[FrozenTrial]) -> dict[str, dict[str, tuple[Any, ...]]]:
    return {each.name: dict(each.when) for each in inferred_space(trials).parameters}


def test_parameters_of_all_trials_have_no_condition() -> None:
    trials = [a_trial({"lr": lr, "optimizer": "adam"}) for lr in (0.1, 0.2)]
    assert conditions(trials) == {"lr": {}, "optimizer": {}}
    assert conditions([]) == {}


def test_a_parameter_of_some_choices_depends_on_them() -> None:
    trials = [
        a_trial({"optimizer": "adam", "lr": 0.1}),
        a_trial({"optimizer": "sgd", "lr": 0.1, "momentum": 0.5}),
        a_trial({"optimizer": "adam", "lr": 0.2}),
    ]
    assert conditions(trials)["momentum"] == {"optimizer": ("sgd",)}
    # What another choice does shows with the first trial that has it.
    trials.append(a_trial({"optimizer": "lion", "lr": 0.1, "momentum": 0.1}))
    assert conditions(trials)["momentum"] == {"optimizer": ("sgd", "lion")}


def test_layers_beyond_a_number_depend_on_it() -> None:
    """The usual loop over layers; a number between two that have it has it, too."""
    trials = [
        a_trial({"layers": 1, "lr": 0.3}),
        a_trial({"layers": 2, "lr": 0.2}),
        a_trial({"layers": 4, "lr": 0.1, "units_3": 8, "units_4": 16}),
        a_trial({"layers": 3, "lr": 0.2, "units_3": 9}),
        a_trial({"layers": 4, "lr": 0.3, "units_3": 8, "units_4": 32}),
    ]
    assert conditions(trials)["units_3"] == {"layers": (3, 4)}
    assert conditions(trials)["units_4"] == {"layers": (4,)}
    assert conditions([trials[0], *trials[2:3]])["units_3"] == {"layers": (4,)}
    space = {**SPACE, "layers": IntDistribution(2, 10, step=2)}
    trials = [
        a_trial({"layers": 2}, space=space),
        a_trial({"layers": 4, "units_3": 8}, space=space),
        a_trial({"layers": 10, "units_3": 8}, space=space),
    ]
    assert conditions(trials)["units_3"] == {"layers": (4, 6, 8, 10)}


def test_a_condition_may_depend_on_a_parameter_that_has_one() -> None:
    space = {**SPACE, "nesterov": CategoricalDistribution([False, True])}
    trials = [
        a_trial({"optimizer": "adam"}, space=space),
        a_trial({"optimizer": "sgd", "nesterov": True}, space=space),
        a_trial({"optimizer": "sgd", "nesterov": False, "momentum": 0.1}, space=space),
        a_trial({"optimizer": "sgd", "nesterov": False, "momentum": 0.2}, space=space),
    ]
    assert conditions(trials)["nesterov"] == {"optimizer": ("sgd",)}
    assert conditions(trials)["momentum"] == {"nesterov": (False,)}


def test_parameters_of_the_same_branch_depend_on_what_opens_it() -> None:
    """Not on each other, where an unseen choice of one would be taken to exclude the other."""
    space = {**SPACE, "nesterov": CategoricalDistribution([False, True])}
    trials = [
        a_trial({"optimizer": "adam"}, space=space),
        a_trial({"optimizer": "lion"}, space=space),
        a_trial({"optimizer": "sgd", "nesterov": True, "momentum": 0.1}, space=space),
        a_trial({"optimizer": "sgd", "nesterov": True, "momentum": 0.2}, space=space),
    ]
    assert conditions(trials)["nesterov"] == {"optimizer": ("sgd",)}
    assert conditions(trials)["momentum"] == {"optimizer": ("sgd",)}


def test_what_nothing_explains_is_left_out() -> None:
    trials = [
        a_trial({"optimizer": "sgd", "lr": 0.1, "momentum": 0.1}),
        a_trial({"optimizer": "sgd", "lr": 0.2}),
    ]
    assert conditions(trials) == {"optimizer": {}, "lr": {}}


def test_a_range_that_has_changed_and_a_single_value_are_left_out() -> None:
    wider = {**SPACE, "lr": FloatDistribution(1e-5, 1.0, log=True)}
    single = {**SPACE, "layers": IntDistribution(2, 2)}
    trials = [
        a_trial({"optimizer": "sgd", "lr": 0.1}),
        a_trial({"optimizer": "sgd", "lr": 0.1}, space=wider),
    ]
    assert conditions(trials) == {"optimizer": {}}
    assert conditions([a_trial({"layers": 2, "lr": 0.1}, space=single)]) == {"lr": {}}


@pytest.mark.parametrize("state", [TrialState.FAIL, TrialState.RUNNING, TrialState.WAITING])
def test_a_trial_that_did_not_come_to_its_end_may_lack_any(state: TrialState) -> None:
    trials = [
        a_trial({"lr": 0.1, "momentum": 0.2}, state=TrialState.PRUNED),
        a_trial({"lr": 0.1}, state=state),
    ]
    assert conditions(trials) == {"lr": {}, "momentum": {}}
    assert conditions(trials[1:]) == {"lr": {}}


def objective(trial: optuna.Trial) -> float:
    """Best with two layers, of 20 and 50 units."""
    layers = trial.suggest_int("layers", 1, 3)
    units = [trial.suggest_int(f"units_{k}", 8, 64) for k in range(layers)]
    best = {0: 20, 1: 50, 2: 30}
    return abs(layers - 2) + sum(abs(each - best[k]) / 56 for k, each in enumerate(units))


def test_parameters_of_some_trials_are_suggested_by_the_model() -> None:
    """Optuna's samplers for the parameters that all trials have draw these at random."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = CurveGPSampler(seed=3, random_share=0.0)
    study = optuna.create_study(sampler=sampler)
    study.optimize(objective, n_trials=40)
    space = sampler.infer_relative_search_space(study, study.trials[-1])
    assert space.keys() == {"layers", "units_0", "units_1", "units_2"}
    later = [each for each in study.trials[25:] if each.params["layers"] == 2]
    assert len(later) >= 8
    # At random within 6 of 50 in one of four trials.
    near = [each for each in later if abs(each.params["units_1"] - 50) <= 6]
    assert len(near) > len(later) / 2
    assert study.best_value < 0.1
    # The process that makes a study's suggestions is given the trials only.
    given = CurveGPSampler(seed=3, random_share=0.0).sample_relative(study, study.trials[-1], space)
    assert given.keys() == {"layers", *(f"units_{k}" for k in range(given["layers"]))}


def test_a_program_whose_parameters_differ_each_time_is_searched_at_random() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=CurveGPSampler(seed=3, random_share=0.0))
    study.optimize(lambda trial: trial.suggest_float(f"x{trial.number}", 0.0, 1.0), n_trials=15)
    study.optimize(lambda trial: trial.suggest_float("x", 0.0, trial.number + 1.0), n_trials=15)
    assert len(study.trials) == 30
