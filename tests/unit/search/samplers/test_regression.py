"""Tests of the transformation of values before a Gaussian process is fitted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.search.samplers.curve_gp.regression import normalized, standardized


def skewness(values: np.ndarray) -> float:
    z = standardized(values)
    return float((z**3).mean())


@given(st.lists(st.floats(-1e100, 1e100), min_size=1, max_size=30))
def test_the_order_of_values_stays(values: list[float]) -> None:
    found = normalized(np.array(values))
    assert np.isfinite(found).all()
    in_order = found[np.argsort(values, kind="stable")]
    assert (np.diff(in_order) >= 0.0).all()


@given(st.floats(-1e6, 1e6), st.integers(1, 9))
def test_equal_values_are_all_0(value: float, n: int) -> None:
    assert normalized(np.full(n, value)).tolist() == [0.0] * n


@pytest.mark.parametrize("seed", range(3))
def test_values_that_crowd_at_their_best_are_told_apart(seed: int) -> None:
    """Accuracies: nine in ten above 80 %, the worst near 10 %."""
    values = 1.0 - np.random.default_rng(seed).lognormal(-3.0, 1.0, size=300)
    found = normalized(values)
    assert found.mean() == pytest.approx(0.0, abs=1e-9)
    assert found.std() == pytest.approx(1.0)
    assert skewness(values) < -1.5
    assert abs(skewness(found)) < 0.5
    best = np.argsort(values)[-30:]
    assert np.ptp(found[best]) > 2.0 * np.ptp(standardized(values)[best])


def test_normal_values_stay_as_they_are() -> None:
    values = np.random.default_rng(0).normal(5.0, 2.0, size=300)
    assert normalized(values) == pytest.approx(standardized(values), abs=0.15)
