"""The benchmark of suggestions: what it fills, what it compares, and its tables."""

from __future__ import annotations

import math
from collections import Counter

import optuna
import pytest
from optuna.trial import TrialState

from benchmarks.common import quality
from benchmarks.common.prefilled import SPACE, loss_of, random_trials
from benchmarks.common.quality import OBJECTIVES, Found, Search, effect
from benchmarks.decision_cost.suggest import (
    OPTUNA,
    STUDY,
    TUNER,
    UNBOUNDED,
    Timed,
    asking_of,
    cases,
    filled,
    parse_arguments,
    table,
    time_suggestions,
)
from tuner.search.samplers.bounded import BoundedSampler


@pytest.fixture(autouse=True)
def _quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def test_trials_are_of_the_space_and_end_in_both_ways() -> None:
    trials = list(random_trials(300, seed=0))
    states = Counter(trial.state for trial in trials)
    assert 90 < states[TrialState.PRUNED] < 150
    assert all(trial.params.keys() <= set(SPACE.names) for trial in trials)
    assert {"momentum" in trial.params for trial in trials} == {True, False}
    again = random_trials(300, seed=0)
    assert [trial.params for trial in trials] == [trial.params for trial in again]


def test_best_loss_is_zero() -> None:
    best = {"lr": 1e-3, "weight_decay": 1e-4, "dropout": 0.2, "width": 256, "depth": 4}
    assert loss_of({**best, "optimizer": "adamw", "beta": 0.95}) == pytest.approx(0)
    assert all((trial.value or 0) > 0 for trial in random_trials(50, seed=1))


def test_filled_database_is_a_study_of_optuna() -> None:
    with filled(40) as database:
        study = optuna.load_study(study_name=STUDY, storage=database.shown_url)
        expected = list(random_trials(40, seed=0))
        assert [trial.params for trial in study.trials] == [trial.params for trial in expected]
        for stored, made in zip(study.trials, expected, strict=True):
            assert stored.value == pytest.approx(made.value)
            assert stored.intermediate_values == pytest.approx(made.intermediate_values)
            assert (stored.state, stored.system_attrs) == (made.state, made.system_attrs)


@pytest.mark.parametrize(
    "system",
    [TUNER, *(pytest.param(each, marks=pytest.mark.nightly) for each in (UNBOUNDED, OPTUNA))],
)
def test_suggestions_of_each_system_are_timed(system: str) -> None:
    with filled(20) as database, asking_of(system, "tpe", database) as asking:
        first_ms, taken = time_suggestions(asking, n_suggestions=3, limit_s=60)
        study = optuna.load_study(study_name=STUDY, storage=database.shown_url)
    assert first_ms > 0
    assert len(taken) == 3
    states = Counter(trial.state for trial in study.trials[20:])
    assert states == {TrialState.COMPLETE: 3, TrialState.FAIL: 8}


def test_slow_sampler_is_timed_three_times_at_least() -> None:
    with filled(1) as database, asking_of(TUNER, "random", database) as asking:
        assert len(time_suggestions(asking, n_suggestions=50, limit_s=0)[1]) == 3


def test_only_the_tuner_is_bounded() -> None:
    kinds = []
    for system in (TUNER, UNBOUNDED):
        with filled(1) as database, asking_of(system, "tpe", database) as asking:
            sampler = asking._search.study.sampler  # type: ignore[attr-defined]
            kinds.append(isinstance(sampler, BoundedSampler))
    assert kinds == [True, False]


def test_what_would_take_hours_is_left_out() -> None:
    args = parse_arguments(["--samplers", "tpe", "gp"])
    assert list(cases(10_000, args)) == [(TUNER, "tpe"), (TUNER, "gp"), (UNBOUNDED, "tpe")]


def test_table_has_a_column_for_each_number_of_trials() -> None:
    figures = {"first_ms": 1, "ask_ms": 1, "tell_ms": 1, "longest_ms": 9, "load_before": 0}
    timed = [
        Timed(
            system=TUNER,
            sampler="tpe",
            n_trials=n_trials,
            n_suggestions=3,
            both_ms=n_trials / 8,
            both_cpu_ms=1,
            elsewhere_ms=n_trials // 1000,
            **figures,
        )
        for n_trials in (1000, 100)
    ]
    assert table(timed).splitlines() == [
        "| sampler | system | 100 | 1,000 |",
        "|---|---|---|---|",
        "| tpe | tuner | 12.5 (1.0) | 125.0 (1.0), ready after 1 |",
    ]


# -- quality -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "best"),
    [
        ("branin", {"x": math.pi, "y": 2.275}),
        ("rosenbrock", {f"x{i}": 1 for i in range(6)}),
        (
            "hartmann",
            dict(
                zip(
                    [f"x{i}" for i in range(6)],
                    [0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573],
                    strict=True,
                )
            ),
        ),
    ],
)
def test_objective_is_zero_at_its_optimum(name: str, best: dict[str, float]) -> None:
    value = OBJECTIVES[name](optuna.trial.FixedTrial(best))  # type: ignore[arg-type]
    assert value == pytest.approx(0, abs=1e-5)


def a_search(seed: int, limit: int = 0) -> Search:
    return Search(
        sampler="tpe", objective="branin", limit=limit, rest="uniform", seed=seed, n_trials=40
    )


def test_searches_differ_from_the_bound_on() -> None:
    assert quality.run(a_search(0)) != quality.run(a_search(1))
    unbounded, far, near = (quality.run(a_search(0, limit)) for limit in (0, 60, 12))
    assert (far.final, far.area) == (unbounded.final, unbounded.area)
    assert (near.final, near.area) != (unbounded.final, unbounded.area)


def test_effect_is_the_mean_difference_of_pairs() -> None:
    unbounded = [Found(search=a_search(seed), final=-1.0, area=0.0) for seed in range(3)]
    finals = (-1.0, -0.5, -1.1)
    found = [Found(search=a_search(0, 9), final=final, area=0.1) for final in finals]
    changed = effect(found, unbounded)
    assert changed.final == pytest.approx(0.4 / 3)
    assert changed.area == pytest.approx(0.1)
    assert changed.area_error == pytest.approx(0)
    assert (changed.n_seeds, changed.n_worse) == (3, 1)


def test_quality_table_has_a_row_for_each_bound() -> None:
    found = [
        Found(search=a_search(seed, limit), final=-1.0, area=0.0)
        for seed in range(2)
        for limit in (0, 250, 500)
    ]
    rows = quality.table(found).splitlines()[2:]
    assert [row.split(" | ")[3] for row in rows] == ["250", "500"]
    assert rows[0].endswith("| -1.00 | +0.000 ± 0.000 | +0.000 ± 0.000 | 0 of 2 |")
