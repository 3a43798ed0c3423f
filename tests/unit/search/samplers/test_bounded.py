"""A bounded sampler suggests what Optuna's does up to the bound; past it, it sees what counts."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import Any

import optuna
import pytest
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.samplers._tpe.sampler import _split_trials, default_gamma
from optuna.search_space import intersection_search_space
from optuna.search_space.group_decomposed import _GroupDecomposedSearchSpace
from optuna.storages import InMemoryStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from tuner.config import SamplerConfig
from tuner.search.samplers.bounded import BoundedSampler, bounded
from tuner.search.samplers.curve_gp.sampler import CurveGPSampler
from tuner.search.samplers.history_views import (
    GP_LIMIT,
    TPE_LIMIT,
    Shown,
    history_for_curve_gp,
    history_for_gp,
    history_for_tpe,
)
from tuner.search.samplers.registry import build_sampler
from tuner.search_spaces import parse_space

SPACE = parse_space(
    {
        "lr": {"type": "float", "low": 1e-5, "high": 1e-1, "log": True},
        "depth": {"type": "int", "low": 1, "high": 8},
        "optimizer": {"type": "categorical", "choices": ["sgd", "adamw"]},
        "momentum": {"type": "float", "low": 0.0, "high": 0.99, "when": {"optimizer": "sgd"}},
    }
)
DISTRIBUTIONS = {each.name: each.distribution for each in SPACE.parameters}
STATES = (TrialState.COMPLETE, TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)

pytestmark = [
    pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning"),
    pytest.mark.filterwarnings("ignore:Argument:FutureWarning"),
]


@pytest.fixture(autouse=True)
def _quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)


class CountingStorage(InMemoryStorage):
    """Counts how often each of its methods was called."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def get_trial(self, trial_id: int) -> FrozenTrial:
        self.calls["get_trial"] += 1
        return super().get_trial(trial_id)

    def get_all_trials(
        self,
        study_id: int,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
    ) -> list[FrozenTrial]:
        self.calls["get_all_trials"] += 1
        return super().get_all_trials(study_id, deepcopy, states)


class Showing(BaseSampler):
    """Remembers what it was shown."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.seen: list[FrozenTrial] = []

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        self.seen = study._get_trials(deepcopy=False)
        self.numbers = [each.number for each in self.seen]
        self.n_of_study = len(study.get_trials(deepcopy=False))
        return {}

    def sample_relative(self, study: Any, trial: Any, search_space: Any) -> dict[str, Any]:
        return {}

    def sample_independent(self, study: Any, trial: Any, name: str, distribution: Any) -> Any:
        return distribution.to_external_repr(0.5)


def a_study(
    sampler: BaseSampler | None = None,
    directions: Sequence[str] = ("minimize",),
    storage: InMemoryStorage | None = None,
) -> optuna.Study:
    return optuna.create_study(sampler=sampler, directions=directions, storage=storage)


def a_trial(
    drawn: random.Random,
    *,
    state: TrialState = TrialState.COMPLETE,
    values: Sequence[float] | None = None,
    violation: float | None = None,
) -> FrozenTrial:
    params = {"lr": 10 ** drawn.uniform(-5, -1), "depth": drawn.randint(1, 8)}
    params["optimizer"] = drawn.choice(["sgd", "adamw"])  # type: ignore[assignment]
    if params["optimizer"] == "sgd":
        params["momentum"] = drawn.uniform(0, 0.99)
    steps = range(1, drawn.randint(2, 5)) if values is None or len(values) == 1 else ()
    return create_trial(
        state=state,
        values=None if state is TrialState.FAIL else values or [drawn.random()],
        params=params,
        distributions={name: DISTRIBUTIONS[name] for name in params},
        intermediate_values={step: drawn.random() for step in steps},
        constraints={} if violation is None else {"memory": violation},
    )


def finished(
    n_trials: int, *, seed: int = 0, states: Sequence[TrialState] = STATES
) -> list[FrozenTrial]:
    drawn = random.Random(seed)
    return [a_trial(drawn, state=drawn.choice(states)) for _ in range(n_trials)]


def showing(limit: int = 60, **arguments: Any) -> tuple[Showing, BoundedSampler]:
    """A sampler that is shown what TPE is."""
    inner = Showing()
    tpe = optuna.samplers.TPESampler(**arguments)
    return inner, BoundedSampler(inner, partial(history_for_tpe, tpe, 0, limit=limit))


def shown_of(study: optuna.Study, choose: Callable[[optuna.Study], Shown]) -> list[FrozenTrial]:
    shown = choose(study)
    for trial in study.get_trials(deepcopy=False):
        if trial.state.is_finished():
            shown.add(trial)
    return sorted(shown, key=lambda each: each.number)


def shown_to_default_tpe(study: optuna.Study, limit: int = 60) -> list[FrozenTrial]:
    return shown_of(study, partial(history_for_tpe, optuna.samplers.TPESampler(), 0, limit=limit))


def look(sampler: BaseSampler, study: optuna.Study) -> None:
    sampler.infer_relative_search_space(study, study.get_trials(deepcopy=False)[-1])


# -- the same suggestions ----------------------------------------------------------------------


def suggested(sampler: BaseSampler, n_trials: int, directions: Sequence[str] = ("minimize",)):
    """What it suggests while four trials run at once and end in all ways."""
    study = a_study(sampler, directions)
    drawn = random.Random(7)
    running: list[optuna.Trial] = []
    for _ in range(n_trials):
        trial = study.ask()
        SPACE.suggest(trial)
        running.append(trial)
        if len(running) > 4:
            end(study, running.pop(drawn.randrange(4)), drawn, len(directions))
    return [trial.params for trial in study.trials]


def end(study: optuna.Study, trial: optuna.Trial, drawn: random.Random, n_values: int) -> None:
    state = drawn.choice(STATES)
    if n_values == 1:
        trial.report(drawn.random(), 1)
    values = [trial.params["lr"] * drawn.random() for _ in range(n_values)]
    study.tell(trial, values if state is TrialState.COMPLETE else None, state)


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


# -- what is shown -----------------------------------------------------------------------------


@pytest.mark.parametrize("n_trials", [60, 61, 500])
def test_no_more_than_the_limit_are_shown(n_trials: int) -> None:
    study = a_study()
    study.add_trials(finished(n_trials, states=[TrialState.COMPLETE]))
    n_shown = len(shown_to_default_tpe(study))
    assert 60 <= n_shown <= 64  # Two or three are witnesses of the space.
    assert n_shown == 60 or n_trials > 60


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
@pytest.mark.parametrize("n_complete", [0, 3, 400])
def test_what_tpe_takes_for_good_is_what_it_would_take_of_all(
    direction: str, n_complete: int
) -> None:
    limit = 300
    study = a_study(directions=[direction])
    drawn = random.Random(1)
    ends = [(TrialState.COMPLETE, None)] * n_complete
    ends += [(TrialState.PRUNED, None)] * (1000 if n_complete else 15)
    ends += [(TrialState.COMPLETE, violation) for violation in (0.5, 0.1) * 300]
    drawn.shuffle(ends)
    for state, violation in ends:
        value = round(drawn.random(), 2)  # Some are equal.
        study.add_trial(a_trial(drawn, state=state, values=[value], violation=violation))
    shown = shown_to_default_tpe(study, limit)
    good, _ = _split_trials(study, shown, default_gamma(len(shown)))
    of_all, _ = _split_trials(study, study.trials, default_gamma(len(study.trials)))
    assert len(shown) < len(study.trials)
    assert [each.number for each in good] == [each.number for each in of_all]


def test_front_of_several_objectives_is_shown() -> None:
    study = a_study(directions=["minimize", "maximize"])
    drawn = random.Random(2)
    for _ in range(600):
        x, noise = drawn.random(), drawn.random()
        study.add_trial(a_trial(drawn, values=[x + noise, x**2 - noise]))
    study.add_trials(finished_infeasible(drawn))
    shown = {each.number for each in shown_to_default_tpe(study, 300)}
    front = {each.number for each in study.best_trials}
    assert 0 < len(front) < 30
    assert front <= shown


def finished_infeasible(drawn: random.Random) -> list[FrozenTrial]:
    return [a_trial(drawn, values=[-1.0, 2.0], violation=1.0) for _ in range(10)]


def test_infeasible_trials_come_last_with_several_objectives() -> None:
    study = a_study(directions=["minimize", "minimize"])
    drawn = random.Random(2)
    study.add_trials([a_trial(drawn, values=[1.0, 1.0]) for _ in range(100)])
    study.add_trials([a_trial(drawn, values=[0.0, 0.0], violation=2.0) for _ in range(100)])
    study.add_trial(a_trial(drawn, values=[0.0, 0.0], violation=1.0))
    good, _ = _split_trials(study, shown_to_default_tpe(study, 60), 6)
    assert all(not each.constraints for each in good)


def test_gp_is_shown_the_best_and_the_newest() -> None:
    study = a_study()
    study.add_trials(finished(1000, states=STATES[1:]))
    gp = optuna.samplers.GPSampler()
    shown = shown_of(study, partial(history_for_gp, gp, 0))
    complete = study.get_trials(deepcopy=False, states=[TrialState.COMPLETE])
    numbers = {each.number for each in shown}
    assert {each.state for each in shown} == {TrialState.COMPLETE}
    assert GP_LIMIT <= len(shown) <= GP_LIMIT + 4
    assert {each.number for each in complete[-50:]} <= numbers
    best = sorted(complete, key=lambda each: each.value or 0)[:50]
    assert {each.number for each in best} <= numbers


def test_trials_that_run_or_wait_are_all_shown() -> None:
    inner, sampler = showing()
    study = a_study(sampler)
    study.add_trials(finished(200))
    running = [study.ask() for _ in range(3)]
    study.enqueue_trial({"lr": 0.1})
    look(sampler, study)
    assert {200, 201, 202, 203} <= set(inner.numbers)
    assert inner.numbers == sorted(inner.numbers)
    study.tell(running[1], state=TrialState.FAIL)
    look(sampler, study)
    assert {200, 202, 203} <= set(inner.numbers)
    assert 201 not in inner.numbers


def test_whoever_asks_the_study_sees_all() -> None:
    inner, sampler = showing()
    study = a_study(sampler)
    study.add_trials(finished(200))
    SPACE.suggest(study.ask())
    assert len(inner.numbers) < 70
    assert inner.n_of_study == 201


def test_sample_does_not_depend_on_when_a_trial_was_seen() -> None:
    study = a_study()
    at_once, in_steps = showing(), showing()
    for trial in finished(300, states=[TrialState.COMPLETE, TrialState.PRUNED]):
        study.add_trial(trial)
        look(in_steps[1], study)
    look(at_once[1], study)
    assert at_once[0].numbers == in_steps[0].numbers


def test_trials_that_finish_in_another_order_are_shown_alike() -> None:
    numbers = []
    for order in (range(200), reversed(range(200))):
        inner, sampler = showing()
        study = a_study(sampler)
        running = [study.ask() for _ in range(200)]
        for number in order:
            study.tell(running[number], float(number % 17))
            look(sampler, study)
        numbers.append(inner.numbers)
    assert numbers[0] == numbers[1]


def test_sample_is_spread_over_all_trials() -> None:
    study = a_study()
    study.add_trials(finished(2000, states=[TrialState.COMPLETE]))
    numbers = [each.number for each in shown_to_default_tpe(study, 400)]
    quarters = Counter(number // 500 for number in numbers)
    assert all(70 <= quarters[quarter] <= 130 for quarter in range(4))


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


# -- trials that are paused --------------------------------------------------------------------


def paused(study: optuna.Study, n_rungs: int) -> int:
    """Makes a trial that waits at a rung; gives its id."""
    storage, study_id = study._storage, study._study_id
    trial_id = storage.create_new_trial(study_id)
    for rung in range(n_rungs):
        storage.set_trial_intermediate_value(trial_id, 3**rung, 0.5)
        storage.set_trial_system_attr(trial_id, f"completed_rung_{rung}", 0.5)
    storage.set_trial_state_values(trial_id, TrialState.WAITING)
    return trial_id


def shown_to_curves() -> tuple[Showing, BoundedSampler]:
    inner, sampler = Showing(), CurveGPSampler()
    return inner, BoundedSampler(inner, partial(history_for_curve_gp, sampler, 0, limit=20))


def test_of_trials_that_are_paused_some_are_shown_and_those_that_came_furthest() -> None:
    inner, sampler = shown_to_curves()
    study = a_study(sampler)
    study.enqueue_trial({"lr": 0.1})
    far = {paused(study, n_rungs=3) for _ in range(4)}
    for _ in range(100):
        paused(study, n_rungs=1)
    running = study._storage.create_new_trial(study._study_id)
    look(sampler, study)
    assert {0, running, *far} <= set(inner.numbers)
    assert len(inner.numbers) == 2 + 20
    again, fresh = shown_to_curves()
    look(fresh, study)
    assert again.numbers == inner.numbers


def test_one_that_goes_on_is_shown_as_it_is() -> None:
    inner, sampler = shown_to_curves()
    study = a_study(sampler)
    ids = [paused(study, n_rungs=1) for _ in range(50)]
    look(sampler, study)
    resumed = next(each for each in ids if each not in inner.numbers)
    study._storage.set_trial_state_values(resumed, TrialState.RUNNING)
    look(sampler, study)
    assert len(inner.numbers) == 21
    assert resumed in inner.numbers
    study._storage.set_trial_intermediate_value(resumed, 3, 0.4)
    study._storage.set_trial_system_attr(resumed, "completed_rung_1", 0.4)
    study._storage.set_trial_state_values(resumed, TrialState.WAITING)
    look(sampler, study)
    assert len(inner.numbers) == 20
    (seen,) = (each for each in inner.seen if each.number == resumed)
    assert seen.intermediate_values == {1: 0.5, 3: 0.4}
    study._storage.set_trial_state_values(resumed, TrialState.PRUNED, [0.4])
    look(sampler, study)
    assert len(inner.numbers) == 21
