"""`curve_gp` with several objectives: fronts, from what was reported on the way."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

import optuna
import pytest
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from tuner.search.samplers.curve_gp.sampler import CurveGPSampler
from tuner.search.trial_attributes.vector_curve import CURVE_KEY

SPACE: dict[str, BaseDistribution] = {
    "x": FloatDistribution(0.0, 1.0),
    "waste": FloatDistribution(0.0, 1.0),
}


@pytest.fixture(autouse=True)
def _quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def a_trial(
    params: Mapping[str, float],
    curve: Mapping[int, Sequence[float]],
    *,
    state: TrialState = TrialState.PRUNED,
    constraints: Mapping[str, float] | None = None,
) -> FrozenTrial:
    return create_trial(
        state=state,
        values=[*curve[max(curve)]] if state is TrialState.COMPLETE else None,
        params=dict(params),
        distributions=SPACE,
        system_attrs={CURVE_KEY: [[step, [*at]] for step, at in curve.items()]},
        constraints=dict(constraints or {}),
    )


def curve_of(params: Mapping[str, float], n_steps: int) -> dict[int, tuple[float, float]]:
    """Accuracy grows with x, and so does the cost; waste is bad for both, but not at first."""
    x, waste = params["x"], params["waste"]
    return {
        step: (
            x * (1.0 - 1.0 / step) - 0.5 * waste * (1.0 - 2.0 / step),
            x**2 + 0.5 * waste * (1.0 - 1.0 / step),
        )
        for step in range(1, n_steps + 1)
    }


def a_study(*trials: FrozenTrial, seed: int = 0, scalarizes: bool = False) -> optuna.Study:
    sampler = CurveGPSampler(seed=seed, n_startup_trials=5, random_share=0.0, scalarizes=scalarizes)
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=sampler)
    study.add_trials(trials)
    return study


def suggested(study: optuna.Study, n: int = 6) -> list[dict[str, float]]:
    return [study.ask(SPACE).params for _ in range(n)]


GRID = [{"x": i / 5, "waste": j / 4} for i in range(6) for j in range(5)]


@pytest.mark.parametrize("scalarizes", [False, True])
def test_unfinished_trials_show_what_is_good_in_the_end(scalarizes: bool) -> None:
    study = a_study(*(a_trial(each, curve_of(each, 9)) for each in GRID), scalarizes=scalarizes)
    found = suggested(study)
    assert statistics.median(each["waste"] for each in found) < 0.1
    assert max(each["x"] for each in found) - min(each["x"] for each in found) > 0.3, "a front"


def test_values_of_unlike_steps_are_not_compared() -> None:
    """After two steps waste looks good; those that were trained longer say otherwise."""
    early = [a_trial(each, curve_of(each, 2)) for each in GRID]
    late = [a_trial(each, curve_of(each, 27)) for each in GRID[::3]]
    found = suggested(a_study(*early, *late))
    assert statistics.median(each["waste"] for each in found) < 0.3


def test_a_gap_of_the_front_is_filled() -> None:
    known = [k / 40 for k in range(41) if not 0.3 < k / 40 < 0.7]
    rows = [{"x": x, "waste": waste} for x in known for waste in (0.0, 0.5)]
    trials = [a_trial(each, curve_of(each, 9), state=TrialState.COMPLETE) for each in rows]
    found = suggested(a_study(*trials), n=3)
    assert sum(0.3 < each["x"] < 0.7 for each in found) >= 2


def test_what_breaks_a_constraint_is_not_of_the_front() -> None:
    trials = [
        a_trial(
            each, curve_of(each, 9), state=TrialState.COMPLETE, constraints={"c": each["x"] - 0.5}
        )
        for each in GRID
    ]
    found = suggested(a_study(*trials))
    assert statistics.median(each["x"] for each in found) < 0.55


def test_a_trial_that_diverged_in_one_objective_is_avoided() -> None:
    trials = [
        a_trial(
            each,
            curve_of(each, 2) | ({3: (math.nan, 1.0)} if each["x"] > 0.5 else {}),
        )
        for each in GRID
    ]
    found = suggested(a_study(*trials))
    assert statistics.median(each["x"] for each in found) < 0.6


def test_programs_that_report_at_the_end_alone_are_learned_from() -> None:
    def objective(trial: optuna.Trial) -> tuple[float, float]:
        x, waste = trial.suggest_float("x", 0.0, 1.0), trial.suggest_float("waste", 0.0, 1.0)
        return x - waste, x**2 + waste

    study = a_study()
    study.optimize(objective, n_trials=16)
    assert statistics.median(each.params["waste"] for each in study.trials[10:]) < 0.2


def test_five_objectives_are_weighted() -> None:
    """The boxes of a front of five objectives are too many."""
    sampler = CurveGPSampler(seed=0, n_startup_trials=5, random_share=0.0)
    study = optuna.create_study(directions=["minimize"] * 5, sampler=sampler)

    def objective(trial: optuna.Trial) -> list[float]:
        x, waste = trial.suggest_float("x", 0.0, 1.0), trial.suggest_float("waste", 0.0, 1.0)
        return [(x - k / 4) ** 2 + waste for k in range(5)]

    study.optimize(objective, n_trials=14)
    assert statistics.median(each.params["waste"] for each in study.trials[8:]) < 0.25


@pytest.mark.parametrize("seed", range(2))
def test_a_place_that_is_pruned_early_again_and_again_is_left(seed: int) -> None:
    """Trials above 0.6 start badly and are pruned, so that their final values stay uncertain."""
    space: dict[str, BaseDistribution] = {"x": FloatDistribution(0.0, 1.0)}

    def curve(x: float, n_steps: int) -> dict[int, tuple[float, float]]:
        late = {s: min(x, 1.2 - x) + 0.1 * math.log(s) * (1.0 + x) for s in range(1, n_steps + 1)}
        values = {s: v - (0.6 if x > 0.6 and s <= 2 else 0.0) for s, v in late.items()}
        # The costs of an accurate model are low: the front is one place.
        return {s: (v, -v) for s, v in values.items()}

    def known(x: float) -> FrozenTrial:
        reports = curve(x, 50)
        return create_trial(
            values=[*reports[50]],
            params={"x": x},
            distributions=space,
            system_attrs={CURVE_KEY: [[step, [*at]] for step, at in reports.items()]},
        )

    study = a_study(
        *map(known, (0.05, 0.15, 0.3, 0.45, 0.5, 0.55, 0.65, 0.75, 0.85, 0.95)), seed=seed
    )
    tried = []
    for _ in range(20):
        trial = study.ask(space)
        tried.append(trial.params["x"])
        is_pruned = tried[-1] > 0.6
        reports = curve(tried[-1], 2 if is_pruned else 50)
        found = [[step, [*at]] for step, at in reports.items()]
        study._storage.set_trial_system_attr(trial._trial_id, CURVE_KEY, found)
        state = TrialState.PRUNED if is_pruned else TrialState.COMPLETE
        study.tell(trial, None if is_pruned else reports[50], state=state)
    # It was 20 times between 0.61 and 0.65.
    assert min(tried) < 0.6
    assert max(tried) > 0.7
