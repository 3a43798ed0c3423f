"""A prior is followed while it pays, and dropped where it is wrong."""

from __future__ import annotations

import math

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from tuner.search.samplers.bounded import bounded
from tuner.search.samplers.curve_gp.sampler import CurveGPSampler
from tuner.search.samplers.prior import EXACT_ATTR, PRIOR_ATTR, PriorSampler, Tally, tallies

GUESS = {"lr": 1e-3, "width": 64, "kind": "b"}


def objective(trial: optuna.Trial) -> float:
    """Best at lr 1e-3, width 64, kind b."""
    lr = trial.suggest_float("lr", 1e-5, 1.0, log=True)
    width = trial.suggest_int("width", 8, 512, log=True)
    kind = trial.suggest_categorical("kind", ["a", "b", "c"])
    miss = abs(math.log10(lr) + 3) + abs(math.log2(width) - 6) / 3 + (kind != "b")
    return -miss


def run(sampler: BaseSampler, n_trials: int) -> list[FrozenTrial]:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(objective, n_trials=n_trials)
    return study.trials


def n_of_prior(trials: list[FrozenTrial]) -> int:
    return sum(PRIOR_ATTR in each.system_attrs for each in trials)


@pytest.mark.parametrize(
    "inner",
    [
        pytest.param(lambda: RandomSampler(seed=1), id="random"),
        pytest.param(lambda: bounded(TPESampler(seed=1), seed=1), id="tpe"),
        pytest.param(lambda: bounded(CurveGPSampler(seed=1), seed=1), id="curve_gp"),
    ],
)
def test_first_trial_is_the_guess_and_both_kinds_follow(inner) -> None:
    trials = run(PriorSampler(inner(), GUESS, seed=1), 25)
    assert trials[0].params == GUESS
    assert 3 <= n_of_prior(trials) <= 22
    assert all(trial.params != GUESS for trial in trials[1:])


def test_wrong_prior_is_asked_less_than_a_right_one() -> None:
    wrong = {"lr": 1.0, "width": 512, "kind": "c"}
    shares = []
    for guess in (GUESS, wrong):
        sampler = PriorSampler(RandomSampler(seed=2), guess, seed=2)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        study.optimize(objective, n_trials=40)
        # Without the decay, which both have.
        shares.append(sampler.share(study) * 40 / 20)
    right_share, wrong_share = shares
    assert right_share > 0.5 > 0.3 > wrong_share


def test_share_falls_with_the_number_of_trials() -> None:
    sampler = PriorSampler(RandomSampler(seed=3), GUESS, seed=3)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    assert sampler.share(study) == pytest.approx(0.5)
    study.optimize(objective, n_trials=200)
    assert sampler.share(study) <= 20 / 200


def test_parameters_without_a_guess_are_drawn_as_well() -> None:
    trials = run(PriorSampler(RandomSampler(seed=4), {"lr": 1e-3}, seed=4), 12)
    assert trials[0].params["lr"] == 1e-3
    assert len({trial.params["width"] for trial in trials}) > 3


def test_guess_outside_of_a_program_s_own_space_is_left_to_chance() -> None:
    sampler = PriorSampler(RandomSampler(seed=4), {"lr": 50.0, "kind": "z"}, seed=4)
    assert all(1e-5 <= trial.params["lr"] <= 1.0 for trial in run(sampler, 8))


def test_each_of_several_is_tried_once_as_it_is_and_all_are_drawn_around() -> None:
    others = [{"lr": 1e-1, "width": 512, "kind": "c"}, {"lr": 1e-5, "width": 8, "kind": "a"}]
    sampler = PriorSampler(RandomSampler(seed=8), GUESS, *others, seed=8)
    trials = run(sampler, 60)
    assert trials[0].params == GUESS
    for each in (GUESS, *others):
        assert [trial.params == each for trial in trials].count(True) == 1
    own = [trial for trial in trials if PRIOR_ATTR in trial.system_attrs]
    assert sum(EXACT_ATTR in trial.system_attrs for trial in own) == 3
    assert {trial.system_attrs[PRIOR_ATTR] for trial in own[3:]} == {1, 2, 3}


def test_later_start_that_believes_in_fewer_can_go_on() -> None:
    study = optuna.create_study(
        direction="maximize",
        sampler=PriorSampler(RandomSampler(seed=6), *[GUESS] * 4, seed=6),
    )
    study.optimize(objective, n_trials=12)
    study.sampler = PriorSampler(RandomSampler(seed=7), GUESS, seed=7)
    study.optimize(objective, n_trials=5)
    assert len(study.trials) == 17


def test_given_configurations_are_not_the_prior_s() -> None:
    sampler = PriorSampler(RandomSampler(seed=5), GUESS, seed=5)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.enqueue_trial({"lr": 0.5, "width": 8, "kind": "a"})
    study.optimize(objective, n_trials=2)
    given, first = study.trials
    assert given.params == {"lr": 0.5, "width": 8, "kind": "a"}
    assert PRIOR_ATTR not in given.system_attrs
    assert first.params == GUESS


def test_later_start_does_not_try_the_guess_again() -> None:
    study = optuna.create_study(
        direction="maximize", sampler=PriorSampler(RandomSampler(seed=6), GUESS, seed=6)
    )
    study.optimize(objective, n_trials=3)
    study.sampler = PriorSampler(RandomSampler(seed=7), GUESS, seed=7)
    study.optimize(objective, n_trials=10)
    assert [trial.params == GUESS for trial in study.trials].count(True) == 1


@pytest.mark.parametrize(
    ("distribution", "guess"),
    [
        (FloatDistribution(0.0, 1.0), 0.0),
        (FloatDistribution(1e-5, 1.0, log=True), 1.0),
        (FloatDistribution(0.0, 1.0, step=0.25), 0.5),
        (IntDistribution(1, 5), 5),
        (IntDistribution(8, 512, log=True), 8),
        (CategoricalDistribution(["only"]), "only"),
    ],
)
def test_draws_stay_in_the_range(distribution, guess) -> None:
    sampler = PriorSampler(RandomSampler(seed=0), {"p": guess}, seed=0)
    for _ in range(200):
        drawn = sampler._near(guess, distribution)
        assert distribution._contains(distribution.to_internal_repr(drawn))


def a_trial(
    values: list[float], *, is_priors: bool, state: TrialState = TrialState.COMPLETE
) -> FrozenTrial:
    return create_trial(
        state=state,
        value=values[-1] if state is TrialState.COMPLETE else None,
        intermediate_values=dict(enumerate(values, 1)),
        system_attrs={PRIOR_ATTR: True} if is_priors else {},
    )


def numbered(trials: list[FrozenTrial]) -> list[FrozenTrial]:
    for number, trial in enumerate(trials):
        trial.number = number
    return trials


def test_kinds_are_compared_at_one_step() -> None:
    trials = [
        # Long ones are better at their ends, and not at the step that is compared.
        a_trial([0.1, 0.2, 0.9], is_priors=False),
        a_trial([0.1, 0.3], is_priors=False, state=TrialState.PRUNED),
        a_trial([0.6, 0.7], is_priors=True, state=TrialState.PRUNED),
        a_trial([0.9], is_priors=True, state=TrialState.PRUNED),
        a_trial([0.9], is_priors=True, state=TrialState.RUNNING),
    ]
    own, others = tallies(numbered(trials), [StudyDirection.MAXIMIZE])
    assert step_two(own, others) == ((2, 1), (2, 0))


def step_two(*found: Tally) -> tuple[tuple[int, int], ...]:
    return tuple((each.n, each.n_best) for each in found)


def test_several_objectives_are_not_compared() -> None:
    trials = [create_trial(values=[1.0, 2.0])]
    both = [StudyDirection.MAXIMIZE, StudyDirection.MINIMIZE]
    assert tallies(trials, both) == (Tally(), Tally())
