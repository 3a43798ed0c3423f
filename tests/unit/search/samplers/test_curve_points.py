"""Which points of which curves `curve_gp` looks at."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import FloatDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from tuner.search.samplers.curve_gp.points import Steps, is_informative, observed, thinned


def a_trial(
    curve: Mapping[int, float],
    *,
    number: int = 0,
    state: TrialState = TrialState.PRUNED,
    value: float | None = None,
) -> FrozenTrial:
    trial = create_trial(
        state=state,
        value=value,
        params={"x": 0.5},
        distributions={"x": FloatDistribution(0.0, 1.0)},
        intermediate_values=dict(curve),
    )
    trial.number = number
    return trial


def curves_of(trials: Sequence[FrozenTrial]) -> list[tuple[FrozenTrial, dict[int, float]]]:
    return [(each, thinned(each)) for each in trials]


def test_points_lie_evenly_over_the_logarithm_of_the_step_and_the_last_is_one() -> None:
    curve = {step: float(step) for step in range(1, 53)}
    assert list(thinned(a_trial(curve))) == [1, 2, 3, 5, 8, 12, 18, 27, 41, 52]


def test_of_a_short_curve_every_report_is_kept() -> None:
    assert thinned(a_trial({0: 0.1, 1: 0.2, 2: 0.3})) == {0: 0.1, 1: 0.2, 2: 0.3}


def test_the_end_value_stands_for_the_last_report() -> None:
    trial = a_trial({1: 0.1, 2: 0.2}, state=TrialState.COMPLETE, value=0.7)
    assert thinned(trial) == {1: 0.1, 2: 0.7}


def test_what_is_no_number_is_left_out() -> None:
    assert thinned(a_trial({1: 0.1, 2: math.nan, 3: math.inf})) == {1: 0.1}


def test_a_trial_that_says_nothing_is_not_informative() -> None:
    assert not is_informative(a_trial({}))
    assert is_informative(a_trial({1: 0.5}, state=TrialState.RUNNING))
    assert is_informative(a_trial({}, state=TrialState.COMPLETE, value=0.5))


def test_scores_are_the_larger_the_better() -> None:
    points, _ = observed(curves_of([a_trial({1: 0.25})]), is_maximized=False, limit=10)
    assert [each.score for each in points] == [-0.25]


def test_programs_that_report_nothing_are_known_by_their_ends() -> None:
    trials = [a_trial({}, number=n, state=TrialState.COMPLETE, value=float(n)) for n in range(3)]
    points, steps = observed(curves_of(trials), is_maximized=True, limit=10)
    assert [each.score for each in points] == [0.0, 1.0, 2.0]
    assert {steps.place(each.step) for each in points} == {1.0}


def test_a_step_has_its_place_by_its_logarithm() -> None:
    steps = Steps(first=0, last=7)
    assert [steps.place(step) for step in (0, 1, 3, 7)] == pytest.approx([0.0, 1 / 3, 2 / 3, 1.0])


def test_how_far_a_training_diverged_does_not_matter() -> None:
    ordinary = [a_trial({1: 0.5 + n / 100}, number=n) for n in range(20)]
    diverged = a_trial({1: 1e30}, number=20)
    points, _ = observed(curves_of([*ordinary, diverged]), is_maximized=False, limit=99)
    scores = [each.score for each in points[:20]]
    assert min(scores) - 1.0 < points[20].score < min(scores)


def test_the_longest_curves_come_first_and_some_of_the_others_are_among_them() -> None:
    short = [a_trial({1: 0.1}, number=n) for n in range(1000)]
    long = [a_trial({step: 0.1 for step in range(1, 30)}, number=1000 + n) for n in range(5)]
    points, _ = observed(curves_of([*short, *long]), is_maximized=True, limit=100)
    numbers = {each.trial.number for each in points}
    assert len(points) == 100
    assert numbers >= set(range(1000, 1005))
    assert len(numbers & set(range(900))) > 10


@given(
    st.lists(
        st.dictionaries(st.integers(0, 300), st.floats(allow_nan=True), max_size=20), max_size=30
    ),
    st.integers(1, 50),
)
def test_there_are_never_more_points_than_the_limit_and_all_are_finite(
    curves: list[dict[int, float]], limit: int
) -> None:
    trials = [a_trial(curve, number=n) for n, curve in enumerate(curves)]
    points, steps = observed(curves_of(trials), is_maximized=True, limit=limit)
    assert len(points) <= limit
    assert all(math.isfinite(each.score) for each in points)
    assert all(0.0 <= steps.place(each.step) <= 1.0 for each in points)


def test_the_best_trial_is_looked_at_however_many_longer_ones_are_newer() -> None:
    best = a_trial({1: 0.5, 2: 9.0}, number=0)
    others = [a_trial({1: 0.1, 2: 0.2, 4: 0.3}, number=k) for k in range(1, 50)]
    points, _ = observed(curves_of([best, *others]), is_maximized=True, limit=30)
    assert [each.step for each in points if each.trial is best] == [1, 2]
    points, _ = observed(curves_of([best, *others]), is_maximized=False, limit=30)
    assert len(points) <= 30


def test_only_reports_after_a_step_count_and_results_without_reports() -> None:
    trials = [
        a_trial({1: 0.9, 2: 0.8}, number=0),
        a_trial({1: 0.1, 2: 0.2, 3: 0.3, 9: 0.4}, number=1),
        a_trial({}, number=2, state=TrialState.COMPLETE, value=0.7),
    ]
    points, steps = observed(curves_of(trials), is_maximized=True, limit=10, after=2)
    assert [(each.trial.number, each.step, each.score) for each in points] == [
        (1, 3, 0.3),
        (1, 9, 0.4),
        (2, 9, 0.7),
    ]
    assert (steps.first, steps.last) == (3, 9)
    assert observed(curves_of(trials[:1]), is_maximized=True, limit=10, after=2)[0] == []
