"""Where a study will end, and how sure that is."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.app.columns import trials
from tuner.app.data.cache import Kept
from tuner.app.data.convergence.forecast import MIN_TRIALS, forecast, trials_left
from tuner.app.data.convergence.hypervolume import hypervolume


def test_forecast_holds_as_often_as_it_says() -> None:
    random = np.random.default_rng(0)
    inside = 0
    for _ in range(200):
        seen, coming = random.normal(size=200), random.normal(size=200)
        told = forecast(trials(seen.tolist()), 0, is_maximized=True, n_more=200)
        assert told is not None
        end = max(seen.max(), coming.max())
        inside += told.cautious <= end + 1e-12 and end <= told.hopeful + 1e-12
    assert 0.75 <= inside / 200 <= 0.95


def test_forecast_is_never_worse_than_what_is_there() -> None:
    values = np.linspace(1.0, 2.0, 40).tolist()
    told = forecast(trials(values), 0, is_maximized=False, n_more=10)
    assert told is not None
    assert told.hopeful <= told.median <= told.cautious <= 1.0


def test_forecast_of_more_trials_is_better() -> None:
    values = np.random.default_rng(1).exponential(size=100).tolist()
    few, many = (forecast(trials(values), 0, is_maximized=True, n_more=n) for n in (10, 1000))
    assert few is not None
    assert many is not None
    assert many.hopeful > few.hopeful


@pytest.mark.parametrize(
    "values", [[1.0] * (MIN_TRIALS - 1), [1.0] * 50], ids=["too few", "all the same"]
)
def test_no_forecast_from_nothing(values: list[float]) -> None:
    assert forecast(trials(values), 0, is_maximized=True, n_more=10) is None


@pytest.mark.parametrize(
    ("n_finished", "fraction", "n_allowed", "left"),
    [(50, 0.5, 100, 50), (50, 0.5, None, 50), (50, None, None, 0), (100, 1.0, 100, 0)],
    ids=["by trials", "by time", "open", "spent"],
)
def test_trials_that_are_left(
    n_finished: int, fraction: float | None, n_allowed: int | None, left: int
) -> None:
    assert trials_left(n_finished, fraction, n_allowed) == left


def test_hypervolume_of_a_square() -> None:
    found = hypervolume(trials([[2.0, 2.0], [1.0, 1.5], [0.0, 0.5], [5.0, 5.0]]), [False, False])
    assert found is not None
    assert found.reference == (5.0, 5.0)
    assert found.volumes.tolist() == pytest.approx([9.0, 14.0, 22.5, 22.5])
    assert found.numbers.tolist() == [0, 1, 2, 3]
    assert found.ideal == (0.0, 0.5)
    assert found.shares.tolist() == pytest.approx([9 / 22.5, 14 / 22.5, 1.0, 1.0])


def test_hypervolume_of_one_trial_has_no_box() -> None:
    found = hypervolume(trials([[2.0, 3.0]]), [True, False])
    assert found is not None
    assert found.shares.tolist() == [0.0]


def test_hypervolume_of_what_is_maximized() -> None:
    found = hypervolume(trials([[0.0, 1.0], [2.0, 0.0]]), [True, False])
    assert found is not None
    assert found.reference == (0.0, 1.0)
    assert found.volumes.tolist() == pytest.approx([0.0, 2.0])


def test_kept_while_its_sources_are_the_same() -> None:
    kept, one, other, made = Kept(), [1], [1], iter(range(9))
    assert kept.get("key", (one,), lambda: next(made)) == 0
    assert kept.get("key", (one,), lambda: next(made)) == 0
    assert kept.get("key", (other,), lambda: next(made)) == 1
