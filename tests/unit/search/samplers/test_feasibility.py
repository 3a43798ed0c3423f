"""What breaks a constraint, runs out of memory or diverges says where others may, too."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping

import numpy as np
import optuna
import pytest
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from tuner.search.samplers.curve_gp.acquisition import Scales
from tuner.search.samplers.curve_gp.feasibility import Feasibility, works
from tuner.search.samplers.curve_gp.sampler import CurveGPSampler

SPACE: dict[str, BaseDistribution] = {"x": FloatDistribution(0.0, 1.0)}
OUT_OF_MEMORY = {"tuner:out_of_memory": 1.0}


@pytest.fixture(autouse=True)
def _quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def a_trial(
    x: float,
    curve: Mapping[int, float] | None = None,
    *,
    constraints: Mapping[str, float] | None = None,
    state: TrialState = TrialState.PRUNED,
) -> FrozenTrial:
    return create_trial(
        state=state,
        value=curve[max(curve)] if curve and state is TrialState.COMPLETE else None,
        params={"x": x},
        distributions=SPACE,
        intermediate_values=dict(curve or {}),
        constraints=dict(constraints or {}),
    )


def probability_at(trials: list[FrozenTrial], *places: float) -> list[float]:
    scales = Scales(columns=[0], lengths=[0.6])
    found = Feasibility().learn(
        trials, lambda trial: np.array([trial.params["x"]]), scales, limit=100
    )
    assert found is not None
    return found(np.array(places)[:, None]).tolist()  # type: ignore[no-any-return]


PLACES = [k / 20 for k in range(21)]


def test_where_nothing_failed_nothing_is_said() -> None:
    trials = [a_trial(x, {1: x}, constraints={"latency": -1.0}) for x in PLACES]
    scales = Scales(columns=[0], lengths=[0.6])
    assert Feasibility().learn(trials, lambda _: np.zeros(1), scales, limit=100) is None


@pytest.mark.parametrize("how", ["memory", "nan", "infinite"])
def test_near_what_failed_others_may_fail_too(how: str) -> None:
    def trial(x: float) -> FrozenTrial:
        if x <= 0.6:
            return a_trial(x, {1: x, 2: x})
        if how == "memory":
            return a_trial(x, constraints=OUT_OF_MEMORY)
        return a_trial(x, {1: x, 2: math.nan if how == "nan" else math.inf})

    trials = [trial(x) for x in PLACES]
    assert [works(each) for each in trials] == [x <= 0.6 for x in PLACES]
    far, near, beyond = probability_at(trials, 0.2, 0.55, 0.9)
    assert far > 0.95
    assert near > 0.6
    assert beyond < 0.05


def test_the_distance_to_a_bound_says_where_it_is() -> None:
    """Nobody has come nearer to the bound, at 0.7, than 0.5 and 0.9."""
    trials = [
        a_trial(x, {1: x}, constraints={"latency": x - 0.7}) for x in PLACES if x <= 0.5 or x >= 0.9
    ]
    within, beyond = probability_at(trials, 0.62, 0.78)
    assert within > 0.8
    assert beyond < 0.2


@pytest.mark.parametrize("kept", [0.0, -1.0])
def test_a_constraint_without_a_distance_counts_too(kept: float) -> None:
    trials = [a_trial(x, {1: x}, constraints={"fits": 1.0 if x > 0.6 else kept}) for x in PLACES]
    inside, outside = probability_at(trials, 0.3, 0.9)
    assert inside > 0.9
    assert outside < 0.1


def test_a_huge_violation_does_not_hide_the_bound() -> None:
    trials = [a_trial(x, {1: x}, constraints={"c": 1e12 if x == 1.0 else x - 0.6}) for x in PLACES]
    inside, outside = probability_at(trials, 0.3, 0.85)
    assert inside > 0.8
    assert outside < 0.2


def a_study(*trials: FrozenTrial) -> optuna.Study:
    sampler = CurveGPSampler(seed=0, n_startup_trials=5, random_share=0.0)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.add_trials(trials)
    return study


@pytest.mark.parametrize("constraints", [OUT_OF_MEMORY, {"own": 1.0}])
def test_the_best_lies_beside_what_fails(constraints: Mapping[str, float]) -> None:
    """The larger the better, until memory ends at 0.7: that its neighbours failed says nothing
    about how good a configuration is."""
    trials = [
        a_trial(x, {1: x, 9: x}, state=TrialState.COMPLETE, constraints={"own": -1.0})
        if x <= 0.7
        else a_trial(x, constraints=constraints)
        for x in PLACES
    ]
    study = a_study(*trials)
    suggested = [study.ask(SPACE).params["x"] for _ in range(6)]
    assert statistics.median(suggested) == pytest.approx(0.7, abs=0.1)
    assert sum(x > 0.8 for x in suggested) <= 1


def test_one_that_broke_a_constraint_is_not_improved_on() -> None:
    """Its value is known and far better than all others; it cannot be had."""
    trials = [
        a_trial(
            x,
            {1: -abs(x - 0.3) + 10.0 * (x > 0.6)},
            state=TrialState.COMPLETE,
            constraints={"size": x - 0.6},
        )
        for x in PLACES
    ]
    study = a_study(*trials)
    suggested = [study.ask(SPACE).params["x"] for _ in range(6)]
    assert statistics.median(suggested) < 0.65


def test_where_nothing_has_worked_it_looks_elsewhere() -> None:
    study = a_study(*(a_trial(x, constraints=OUT_OF_MEMORY) for x in PLACES if x > 0.4))
    suggested = [study.ask(SPACE).params["x"] for _ in range(4)]
    assert statistics.median(suggested) < 0.3
