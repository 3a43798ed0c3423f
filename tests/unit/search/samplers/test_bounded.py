"""A bounded sampler suggests what Optuna's does up to the bound; past it, it sees what counts."""

from __future__ import annotations

import warnings

import optuna
import pytest
from optuna.search_space import intersection_search_space
from optuna.search_space.group_decomposed import _GroupDecomposedSearchSpace
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from tests.unit.search.samplers.shown_trials import (
    SPACE,
    CountingStorage,
    a_study,
    finished,
    look,
    showing,
    shown_to_default_tpe,
    suggested,
)
from tuner.config import SamplerConfig
from tuner.search.samplers.bounded import BoundedSampler, bounded
from tuner.search.samplers.history_views import (
    GP_LIMIT,
    TPE_LIMIT,
)
from tuner.search.samplers.registry import build_sampler

pytestmark = [
    pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning"),
    pytest.mark.filterwarnings("ignore:Argument:FutureWarning"),
]


SAMPLERS = {
    "tpe": lambda: optuna.samplers.TPESampler(seed=3),
    "tpe-groups": lambda: optuna.samplers.TPESampler(seed=3, multivariate=True, group=True),
    "tpe-univariate": lambda: optuna.samplers.TPESampler(seed=3, multivariate=False),
    "tpe-no-liar": lambda: optuna.samplers.TPESampler(seed=3, constant_liar=False),
    "tpe-late": lambda: optuna.samplers.TPESampler(seed=3, n_startup_trials=40),
    "cma_es": lambda: optuna.samplers.CmaEsSampler(seed=3, popsize=4),
    "cma_es-pruned": lambda: optuna.samplers.CmaEsSampler(
        seed=3, popsize=4, consider_pruned_trials=True
    ),
    "nsgaii": lambda: optuna.samplers.NSGAIISampler(seed=3, population_size=4),
    "nsgaiii": lambda: optuna.samplers.NSGAIIISampler(seed=3, population_size=4),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLERS)
def test_suggestions_are_those_of_optuna_up_to_the_bound(name: str) -> None:
    make = SAMPLERS[name]
    sampler = bounded(make(), seed=0)
    assert isinstance(sampler, BoundedSampler)
    assert suggested(sampler, 100) == suggested(make(), 100)


def test_suggestions_of_gp_are_those_of_optuna_up_to_the_bound() -> None:
    params = []
    for is_bounded in (False, True):
        gp = optuna.samplers.GPSampler(seed=3, n_startup_trials=3)
        study = a_study(bounded(gp, seed=0) if is_bounded else gp)
        study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=6)
        params.append([trial.params for trial in study.trials])
    assert params[0] == params[1]


def test_gp_is_shown_what_it_reads_up_to_the_bound() -> None:
    sampler = bounded(optuna.samplers.GPSampler(), seed=0)
    assert isinstance(sampler, BoundedSampler)
    study = a_study()
    study.add_trials(finished(GP_LIMIT))
    study.ask()
    part, states = sampler._bounded(study), (TrialState.COMPLETE, TrialState.RUNNING)
    assert part._get_trials(states=states) == study.get_trials(states=states)


@pytest.mark.parametrize("name", ["tpe", "nsgaii"])
def test_several_objectives_are_suggested_as_by_optuna(name: str) -> None:
    make, directions = SAMPLERS[name], ("minimize", "maximize")
    both = [suggested(each, 60, directions) for each in (make(), bounded(make(), seed=0))]
    assert both[0] == both[1]


def test_hyperband_brackets_are_shown_the_same() -> None:
    params = []
    for sampler in (SAMPLERS["tpe"](), bounded(SAMPLERS["tpe"](), seed=0)):
        study = a_study(sampler)
        study.pruner = optuna.pruners.HyperbandPruner(min_resource=1, max_resource=9)
        study.optimize(lambda trial: sum(map(len, map(str, SPACE.suggest(trial)))), n_trials=30)
        params.append([trial.params for trial in study.trials])
    assert params[0] == params[1]


def test_other_samplers_are_left_alone() -> None:
    sampler = optuna.samplers.RandomSampler()
    assert bounded(sampler, seed=0) is sampler


def test_bound_never_keeps_a_sampler_from_starting() -> None:
    inner, sampler = showing(limit=60, n_startup_trials=150)
    study = a_study(sampler)
    study.add_trials(finished(400, states=[TrialState.COMPLETE]))
    SPACE.suggest(study.ask())
    assert len(inner.numbers) >= 150


# -- the inferred space ------------------------------------------------------------------------
def changing_space() -> list[FrozenTrial]:
    """Trials of a space that was changed, with two rare branches."""
    trials = finished(300, states=[TrialState.COMPLETE])
    wide = optuna.distributions.FloatDistribution(1e-6, 1.0, log=True)
    odd = {7: {"lr": wide}, 150: {"rare": wide}, 290: {"rare": wide, "rarer": wide}}
    for number, distributions in odd.items():
        trials[number] = create_trial(
            value=1.0, params=dict.fromkeys(distributions, 0.01), distributions=distributions
        )
    return trials


def test_space_is_inferred_as_from_all_trials() -> None:
    study = a_study()
    study.add_trials(changing_space())
    shown = shown_to_default_tpe(study)
    assert len(shown) < 75
    assert intersection_search_space(shown) == intersection_search_space(study.trials)


def test_groups_are_inferred_as_from_all_trials() -> None:
    _, sampler = showing()
    study = a_study()
    study.add_trials(changing_space())
    part = sampler._bounded(study)
    groups = [_GroupDecomposedSearchSpace(True).calculate(each) for each in (study, part)]
    named = [{frozenset(space) for space in each.search_spaces} for each in groups]
    assert named[0] == named[1]
    assert len(named[0]) > 2


# -- cost --------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["tpe", "gp", "cmaes"])
def test_no_suggestion_reads_all_trials(name: str) -> None:
    storage = CountingStorage()
    config = SamplerConfig.model_validate({"name": name})
    study = a_study(build_sampler(config, SPACE, seed=0), storage=storage)
    study.add_trials(finished(max(TPE_LIMIT, GP_LIMIT) * 3, states=[TrialState.PRUNED]))
    study.add_trials(finished(8, states=[TrialState.COMPLETE]))
    suggest(study)
    storage.calls.clear()
    suggest(study)
    # To look for one that waits, which the tuner's own study does without.
    assert storage.calls["get_all_trials"] == 1
    assert storage.calls["get_trial"] < 40


def suggest(study: optuna.Study) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        SPACE.suggest(study.ask())


# -- samplers in samplers ----------------------------------------------------------------------
def test_sampler_inside_of_another_is_bounded() -> None:
    config = SamplerConfig.model_validate(
        {"name": "partial_fixed", "fixed_params": {"depth": 4}, "base_sampler": {"name": "tpe"}}
    )
    sampler = build_sampler(config, SPACE, seed=0)
    assert isinstance(sampler._base_sampler, BoundedSampler)  # type: ignore[attr-defined]


def test_sampler_inside_of_a_bounded_one_is_bound_by_its_own_rules() -> None:
    inner, independent = showing(limit=100)
    outer = bounded(optuna.samplers.GPSampler(independent_sampler=independent), seed=0)
    study = a_study(outer)
    study.add_trials(finished(90, states=[TrialState.PRUNED]))
    trial = study.ask()
    look(independent, outer._bounded(study))  # type: ignore[attr-defined]
    assert inner.numbers == list(range(91))
    assert trial.number == 90


def test_directions_are_the_study_s() -> None:
    _, sampler = showing()
    part = sampler._bounded(a_study(directions=["maximize"]))
    assert part.direction is StudyDirection.MAXIMIZE
