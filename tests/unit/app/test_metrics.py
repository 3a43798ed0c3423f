"""Moving averages, distributions, rates, and which curves of any metric are drawn."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.app.columns import NAN, trials
from tuner.app.data.metrics.curves import (
    N_OF_A_KIND,
    curve_of,
    drawn_rows,
    moving_average,
    n_lost,
    names_of,
)
from tuner.app.data.metrics.distribution import distribution_of, ended_in, rates_of


def test_average_is_corrected_for_its_beginning() -> None:
    values = np.array([1.0, 2.0, 4.0])
    # By hand: 0.5 / 0.5; (0.25 + 1) / 0.75; (0.125 + 0.5 + 2) / 0.875.
    assert moving_average(values, 0.5).tolist() == pytest.approx([1.0, 5 / 3, 3.0])
    assert moving_average(values, 0.0).tolist() == [1.0, 2.0, 4.0]
    assert moving_average(np.full(50, 7.0), 0.99).tolist() == pytest.approx([7.0] * 50)


REPORTS = {
    1: {"loss": {1: 0.5, 2: None, 4: 0.25}, "lr": {1: 0.1, 2: 0.05, 3: 0.01}},
    2: {"loss": {1: None}},
}


def test_metric_against_another_takes_the_steps_of_both() -> None:
    curve = curve_of(REPORTS[1], "loss", "lr", 0.0)
    assert curve is not None
    assert (curve.x.tolist(), curve.y.tolist()) == ([0.1], [0.5])
    curve = curve_of(REPORTS[1], "loss", None, 0.0)
    assert curve is not None
    assert (curve.x.tolist(), curve.y.tolist()) == ([1.0, 4.0], [0.5, 0.25])


def test_what_is_no_number_is_counted_and_not_drawn() -> None:
    assert n_lost(REPORTS, "loss") == 2
    assert n_lost(REPORTS, "lr") == 0
    assert curve_of(REPORTS[2], "loss", None, 0.0) is None
    assert curve_of(REPORTS[2], "lr", None, 0.0) is None
    assert names_of(REPORTS) == ["loss", "lr"]


@pytest.mark.parametrize("is_maximized", [True, False])
def test_best_and_newest_are_drawn(is_maximized: bool) -> None:
    found = drawn_rows(trials([float(n) for n in range(100)]), is_maximized=is_maximized)
    rows = set(found.tolist())
    newest = set(range(100 - N_OF_A_KIND, 100))
    assert rows == newest | (newest if is_maximized else set(range(N_OF_A_KIND)))


def test_share_of_values_at_most_x() -> None:
    line = distribution_of(np.array([3.0, np.nan, 1.0, np.inf, 1.0, 2.0]))
    assert line.x.tolist() == [1.0, 1.0, 2.0, 3.0]
    assert line.share.tolist() == [0.25, 0.5, 0.75, 1.0]
    assert not len(distribution_of(np.array([np.nan])).x)


HOUR_S = 3600.0


def test_rates_are_by_the_time_that_each_bar_covers() -> None:
    ends = [10.0, 20.0, HOUR_S - 10.0, 90 * 60.0]
    words = ["completed", "pruned", "completed", "completed"]
    some = trials([1.0] * 4, words=words, started_at_s=[0.0] * 4, ended_at_s=ends)
    rates = rates_of(some, now_s=0.0)
    assert rates is not None
    # 90 minutes in bars of two: 45 bars.
    assert len(rates.begin_h) == 45
    assert rates.length_h.sum() == pytest.approx(1.5)
    completed = ended_in(rates, some, some.words == some.words[0])
    assert completed.sum() == 3
    assert completed[0] == 1
    assert completed[29] == 1
    assert completed[44] == 1
    assert ended_in(rates, some, some.words == some.words[1]).tolist() == [1.0] + [0.0] * 44


def test_last_bar_reaches_to_now_while_a_trial_runs() -> None:
    words = ["completed", "running"]
    some = trials([1.0, NAN], words=words, started_at_s=[0.0, 0.0], ended_at_s=[100.0, NAN])
    some.open_since_s[1] = 100.0
    rates = rates_of(some, now_s=150.0)
    assert rates is not None
    assert (rates.length_h * HOUR_S).tolist() == pytest.approx([60.0, 60.0, 30.0])
    assert ended_in(rates, some, some.words >= 0).tolist() == [0.0, 1.0, 0.0]


def test_no_rate_before_a_trial_has_ended() -> None:
    assert rates_of(trials([]), now_s=1.0) is None
    assert rates_of(trials([NAN], words=["running"]), now_s=1.0) is None


def test_weeks_have_few_bars() -> None:
    year_s = 365 * 86_400.0
    some = trials([1.0, 1.0], started_at_s=[0.0, 0.0], ended_at_s=[5.0, year_s])
    rates = rates_of(some, now_s=0.0)
    assert rates is not None
    assert len(rates.begin_h) <= 61
    assert ended_in(rates, some, some.words >= 0).sum() == 2
