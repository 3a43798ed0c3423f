"""The staircase of best values, its axes, and the Pareto front."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.app.columns import NAN, lease, leases, trials
from tuner.app.data.convergence.series import (
    Axis,
    best_so_far,
    can_be_logarithmic,
    pareto_front,
    scale_of,
    unit_of,
    used_device_s,
)


def steps(
    values: list[float], *, is_maximized: bool, infeasible: tuple[int, ...] = ()
) -> list[float]:
    columns = trials(values, infeasible=infeasible)
    scale = scale_of(columns, Axis.TRIALS, None)
    return best_so_far(columns, scale, 0, is_maximized=is_maximized).y.tolist()


def test_best_falls_when_minimized_and_goes_on_to_the_last_trial() -> None:
    columns = trials([3.0, 5.0, 2.0, 4.0])
    best = best_so_far(columns, scale_of(columns, Axis.TRIALS, None), 0, is_maximized=False)
    assert best.x.tolist() == [0, 2, 3]
    assert best.y.tolist() == [3, 2, 2]
    assert best.numbers.tolist() == [0, 2, 2]


def test_best_rises_when_maximized() -> None:
    assert steps([3.0, 5.0, 2.0, 6.0], is_maximized=True) == [3, 5, 6, 6]


def test_infeasible_infinite_and_missing_values_are_nobodys_best() -> None:
    values = [0.1, float("-inf"), NAN, 0.5]
    assert steps(values, is_maximized=False, infeasible=(0,)) == [0.5, 0.5]


def test_only_completed_trials_are_best() -> None:
    columns = trials([0.1, 0.5], words=["pruned", "completed"])
    best = best_so_far(columns, scale_of(columns, Axis.TRIALS, None), 0, is_maximized=False)
    assert best.y.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("words", [[], ["failed"], ["running"], ["waiting", "running"]])
@pytest.mark.parametrize("axis", Axis)
def test_without_a_value_there_is_no_staircase(words: list[str], axis: Axis) -> None:
    columns = trials([NAN] * len(words), words=words)
    best = best_so_far(columns, scale_of(columns, axis, leases()), 0, is_maximized=True)
    assert len(best.x) == len(best.y) == len(best.numbers) == 0


def test_wall_time_orders_trials_by_their_ends() -> None:
    columns = trials([1.0, 2.0], started_at_s=[1000, 1000], ended_at_s=[1400, 1200])
    scale = scale_of(columns, Axis.TIME, None)
    assert scale.title.endswith("(min)")
    assert scale.values == pytest.approx([400 / 60, 200 / 60])
    assert best_so_far(columns, scale, 0, is_maximized=False).y.tolist() == [2, 1, 1]


@pytest.mark.parametrize(
    ("largest_s", "unit"), [(0, "s"), (119, "s"), (120, "min"), (7200, "h"), (200_000, "d")]
)
def test_unit_fits_the_duration(largest_s: float, unit: str) -> None:
    assert unit_of(largest_s)[1] == unit


def test_device_seconds_count_shares_and_what_runs() -> None:
    found = leases(
        lease(1, 0, 0, 10), lease(2, 1, 5, 15, share=0.5), lease(3, 0, 20, NAN), until_s=30
    )
    used = used_device_s(found, np.array([0, 10, 15, 18, 30, NAN]))
    assert used[:-1] == pytest.approx([0, 12.5, 15, 15, 25])
    assert np.isnan(used[-1])


def test_device_seconds_of_trials_that_the_tuner_did_not_run_are_unknown() -> None:
    assert np.isnan(used_device_s(leases(), np.array([1.0]))).all()


def test_front_of_two_objectives() -> None:
    columns = trials([[1.0, 1.0], [2.0, 3.0], [3.0, 2.0], [0.5, 0.5]], infeasible=[3])
    assert pareto_front(columns, [True, True]).tolist() == [False, True, True, False]
    assert pareto_front(columns, [False, True]).tolist() == [True, True, False, False]


@given(
    st.lists(st.tuples(*[st.integers(0, 5)] * 3), max_size=30),
    st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_front_is_who_is_not_beaten(
    values: list[tuple[int, int, int]], is_maximized: tuple[bool, bool, bool]
) -> None:
    columns = trials([[float(v) for v in row] for row in values])
    if not values:
        return
    signs = [-1 if each else 1 for each in is_maximized]
    worth = [[s * v for s, v in zip(signs, row, strict=True)] for row in values]

    def beats(a: list[int], b: list[int]) -> bool:
        return all(x <= y for x, y in zip(a, b, strict=True)) and a != b

    expected = [not any(beats(other, own) for other in worth) for own in worth]
    assert pareto_front(columns, is_maximized).tolist() == expected


def test_logarithmic_axis_needs_values_above_zero() -> None:
    assert can_be_logarithmic(np.array([0.1, NAN, 3]))
    assert not can_be_logarithmic(np.array([0.0, 1]))
    assert not can_be_logarithmic(np.array([NAN]))
