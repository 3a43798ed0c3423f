"""The regression that `curve_gp` predicts with."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from tuner.search.samplers.curve_gp.gaussian_process import Array, GaussianProcess, Pairs


def waves(x: Array) -> Array:
    y: Array = np.sin(6.0 * x[:, 0]) * np.cos(3.0 * x[:, 1])
    return (y - y.mean()) / y.std()


def points(n: int, d: int = 2, seed: int = 0) -> Array:
    return np.random.default_rng(seed).random((n, d))


def test_it_predicts_as_another_implementation_with_the_same_parameters() -> None:
    x, asked = points(20), points(7, seed=1)
    y = waves(x)
    known = GaussianProcess([0.4, 0.7]).given(x, y)
    kernel = ConstantKernel(1.0) * Matern([0.4, 0.7], nu=2.5) + WhiteKernel(0.01 + 1e-6)
    other = GaussianProcessRegressor(kernel, optimizer=None, alpha=0.0).fit(x, y)
    theirs, spread = other.predict(asked, return_std=True)
    mean, deviation = known.predict(asked)
    assert mean == pytest.approx(theirs, abs=1e-6)
    # Theirs is that of the next observation, noise included.
    assert deviation**2 + 0.01 + 1e-6 == pytest.approx(spread**2, abs=1e-6)


def test_what_it_learns_predicts_better_than_what_it_assumed() -> None:
    x, asked = points(60), points(200, seed=1)
    y = waves(np.vstack([x, asked]))
    assumed, learned = GaussianProcess([2.0, 0.05]), GaussianProcess([2.0, 0.05])
    learned.fit(x, y[:60], n_steps=30)
    errors = []
    for process in (assumed, learned):
        mean, _ = process.given(x, y[:60]).predict(asked)
        errors.append(float(np.abs(mean - y[60:]).mean()))
    assert errors[1] < errors[0] / 2


def test_an_input_that_does_nothing_gets_a_long_scale() -> None:
    x = points(80, d=3)
    process = GaussianProcess([0.5, 0.5, 0.5])
    process.fit(x, waves(x), n_steps=30)
    scales = process.length_scales
    assert scales[2] > 2 * max(scales[:2])


def test_points_that_lie_on_each_other_do_no_harm() -> None:
    x = np.repeat(points(3), 20, axis=0)
    y = waves(x)
    process = GaussianProcess([0.5, 0.5])
    process.fit(x, y)
    mean, deviation = process.given(x, y).predict(x[::20])
    assert mean == pytest.approx(y[::20], abs=0.1)
    assert np.isfinite(deviation).all()


def test_far_from_everything_it_knows_only_its_prior() -> None:
    x = points(20)
    known = GaussianProcess([0.1, 0.1]).given(x, waves(x))
    mean, deviation = known.predict(np.array([[50.0, 50.0]]))
    assert mean == pytest.approx([0.0])
    assert deviation == pytest.approx([1.0])


def test_what_one_thread_took_in_is_not_what_another_predicts_from() -> None:
    process = GaussianProcess([0.5, 0.5])
    few, many = points(3), points(30, seed=1)
    of_few = process.given(few, waves(few))
    alone = of_few.predict(few)
    process.given(many, waves(many))
    process.fit(many, waves(many))
    assert np.array_equal(of_few.predict(few), alone)


@pytest.mark.parametrize("has_groups", [False, True])
def test_the_slope_that_is_written_out_is_that_of_the_density(*, has_groups: bool) -> None:
    x = points(30)
    if has_groups:
        x = np.column_stack([x, np.arange(30) // 4])
    process = GaussianProcess([0.5, 0.7], has_groups=has_groups)
    pairs, y = Pairs.of(torch.from_numpy(x), torch.arange(2), 2), torch.from_numpy(waves(x))
    logs = torch.linspace(-0.5, 0.3, 4 + has_groups, dtype=torch.float64)
    _, slope = process.loss(logs, pairs, y)
    for index, found in enumerate(slope):
        beside = torch.zeros_like(logs)
        beside[index] = 1e-5
        apart = process.loss(logs + beside, pairs, y)[0] - process.loss(logs - beside, pairs, y)[0]
        assert float(found) == pytest.approx(apart / 2e-5, rel=1e-5)


def choices_of(*kinds: int) -> Array:
    """[n, 4]: a number, and a choice of three in unary form."""
    return np.array([[0.5, *np.eye(3)[kind]] for kind in kinds])


def test_columns_of_one_choice_have_one_length_and_the_hamming_distance() -> None:
    process = GaussianProcess([0.5, 2.0], columns=[0, 1, 1, 1])
    pairs = Pairs.of(torch.from_numpy(choices_of(0, 0, 1, 2)), torch.tensor([0, 1, 1, 1]), 2)
    apart = pairs.squares[1].reshape(4, 4)
    assert apart.tolist() == [[0, 0, 2, 2], [0, 0, 2, 2], [2, 2, 0, 2], [2, 2, 2, 0]]
    known = process.given(choices_of(0), np.array([1.0]))
    means, _ = known.predict(choices_of(0, 1, 2))
    assert means[0] > means[1] == pytest.approx(means[2])
    # As far as two values of a range that are a length's share apart.
    alike = GaussianProcess([0.5]).given(np.array([[0.0]]), np.array([1.0]))
    beside, _ = alike.predict(np.array([[0.5 * np.sqrt(2.0) / 2.0]]))
    assert means[1] == pytest.approx(beside[0])


def test_the_slope_holds_for_columns_that_share_a_length() -> None:
    rng = np.random.default_rng(0)
    x = choices_of(*rng.integers(3, size=20))
    x[:, 0] = rng.random(20)
    columns = [0, 1, 1, 1]
    process = GaussianProcess([0.5, 2.0], columns=columns)
    y = torch.from_numpy(rng.normal(size=20))
    pairs = Pairs.of(torch.from_numpy(x), torch.tensor(columns), 2)
    logs = torch.linspace(-0.5, 0.3, 4, dtype=torch.float64)
    _, slope = process.loss(logs, pairs, y)
    for index, found in enumerate(slope):
        beside = torch.zeros_like(logs)
        beside[index] = 1e-5
        apart = process.loss(logs + beside, pairs, y)[0] - process.loss(logs - beside, pairs, y)[0]
        assert float(found) == pytest.approx(apart / 2e-5, rel=1e-5)
