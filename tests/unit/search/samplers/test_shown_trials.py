"""Which trials a bounded sampler sees past its bound."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial

import optuna
import pytest
from optuna.samplers._tpe.sampler import _split_trials, default_gamma
from optuna.trial import FrozenTrial, TrialState

from tests.unit.search.samplers.shown_trials import (
    SPACE,
    STATES,
    Showing,
    a_study,
    a_trial,
    finished,
    look,
    showing,
    shown_of,
    shown_to_default_tpe,
)
from tuner.search.samplers.bounded import BoundedSampler
from tuner.search.samplers.curve_gp.sampler import CurveGPSampler
from tuner.search.samplers.history_views import (
    GP_LIMIT,
    history_for_curve_gp,
    history_for_gp,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning"),
    pytest.mark.filterwarnings("ignore:Argument:FutureWarning"),
]


@pytest.fixture(autouse=True)
def _quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)


# -- what is shown -----------------------------------------------------------------------------
@pytest.mark.parametrize("n_trials", [60, 61, 500])
def test_no_more_than_the_limit_are_shown(n_trials: int) -> None:
    study = a_study()
    study.add_trials(finished(n_trials, states=[TrialState.COMPLETE]))
    n_shown = len(shown_to_default_tpe(study))
    assert 60 <= n_shown <= 64  # Two or three are witnesses of the space.
    assert n_shown == 60 or n_trials > 60


@pytest.mark.slow
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


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_curve_gp_is_shown_the_best_however_old_they_are(direction: str) -> None:
    study = a_study(directions=[direction])
    drawn, sign = random.Random(4), 1.0 if direction == "maximize" else -1.0
    values = [sign * (1e3 - k) for k in range(5)]
    study.add_trials([a_trial(drawn, values=[each]) for each in values])
    spoilt = a_trial(drawn, values=[sign * 1e6], violation=1.0)
    study.add_trial(spoilt)
    study.add_trials([a_trial(drawn, values=[sign * drawn.random()]) for _ in range(600)])
    sampler = CurveGPSampler(seed=0)
    choose = partial(history_for_curve_gp, sampler, 0, limit=20)
    shown = {trial.number for trial in BoundedSampler(sampler, choose).shown(study)}
    assert set(range(5)) <= shown
    assert len(shown) <= 20 + 4, "some are witnesses of the space"
