"""How sure the winner is, against closed forms where there are any."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tuner.search.winner_confidence import chances_of_best, judge_confirmed


def t_cdf(t: float, n_free: int) -> float:
    """Of Student's distribution, by its density's integral."""
    grid = np.linspace(-200.0, t, 2_000_001)
    scale = math.gamma((n_free + 1) / 2) / (math.sqrt(n_free * math.pi) * math.gamma(n_free / 2))
    return float(np.trapezoid(scale * (1 + grid**2 / n_free) ** (-(n_free + 1) / 2), grid))


def test_two_groups_have_student_s_probability() -> None:
    a, b = [0.90, 0.92, 0.94, 0.91, 0.93], [0.89, 0.91, 0.95, 0.90, 0.90]
    pooled = (4 * np.var(a, ddof=1) + 4 * np.var(b, ddof=1)) / 8
    t = (np.mean(a) - np.mean(b)) / math.sqrt(pooled * (1 / 5 + 1 / 5))
    chances = chances_of_best([a, b], is_maximized=True)
    assert chances is not None
    assert chances[0] == pytest.approx(t_cdf(float(t), 8), abs=0.005)
    assert sum(chances) == pytest.approx(1.0)


def test_groups_alike_share_and_the_worse_one_has_no_chance() -> None:
    alike = [1.0, 2.0, 3.0]
    chances = chances_of_best([alike, alike, [101.0, 102.0, 103.0]], is_maximized=False)
    assert chances == pytest.approx((0.5, 0.5, 0.0), abs=0.005)


def test_direction_decides_who_is_first() -> None:
    values = {4: [1.0, 1.1], 7: [2.0, 2.1], 9: [0.5, 0.7]}
    assert [each.trial_number for each in judge_confirmed(values, is_maximized=True)] == [7, 4, 9]
    assert [each.trial_number for each in judge_confirmed(values, is_maximized=False)] == [9, 4, 7]


def test_more_runs_make_it_surer() -> None:
    few = chances_of_best([[1.0, 2.0], [2.0, 3.0]], is_maximized=True)
    many = chances_of_best([[1.0, 2.0] * 10, [2.0, 3.0] * 10], is_maximized=True)
    assert few is not None
    assert many is not None
    assert 0.5 < few[1] < many[1]


def test_runs_that_never_differ_leave_no_doubt() -> None:
    chances = chances_of_best([[1.0, 1.0], [2.0, 2.0], [2.0, 2.0]], is_maximized=True)
    assert chances == pytest.approx((0.0, 0.5, 0.5))


def test_single_runs_say_nothing_of_the_deviation() -> None:
    found = judge_confirmed({1: [0.5], 2: [0.6], 3: []}, is_maximized=True)
    assert [(each.trial_number, each.p_best, each.deviation) for each in found] == [
        (2, None, None),
        (1, None, None),
    ]


def test_mean_and_deviation_are_those_of_the_fresh_runs() -> None:
    (found,) = judge_confirmed({3: [1.0, 3.0]}, is_maximized=True)
    assert (found.mean, found.deviation, found.p_best) == (2.0, pytest.approx(math.sqrt(2)), 1.0)
