"""Surfaces of contour plots on a coarse grid."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from tuner.app.charts.surface import coarsen


def test_a_cell_is_the_mean_of_its_trials_and_gaps_are_filled() -> None:
    x = np.linspace(0.0, 1.0, 200)
    z = np.full((3, 200), np.nan)
    z[0, 0], z[0, 1], z[2, 199] = 1.0, 3.0, 8.0
    figure = go.Contour(x=x, y=["a", "b", "c"], z=z, connectgaps=True)
    coarsen(figure, log_x=False, log_y=False)
    filled = np.array(figure.z)
    assert filled.shape == (3, 40)
    assert not figure.connectgaps
    assert list(figure.y) == ["a", "b", "c"]
    assert (figure.x[0], figure.x[-1]) == (0.0, 1.0)
    assert (filled[0, 0], filled[2, -1]) == (2.0, 8.0)
    assert np.isfinite(filled).all()
    assert (filled >= 2.0).all()
    assert (filled <= 8.0).all()


def test_a_logarithmic_axis_has_even_steps_of_its_logarithm() -> None:
    x = np.logspace(-5, -1, 100)
    z = np.full((2, 100), np.nan)
    z[0] = np.log10(x)
    figure = go.Contour(x=x, y=[1, 2], z=z)
    coarsen(figure, log_x=True, log_y=False)
    steps = np.diff(np.log10(np.array(figure.x)))
    assert np.allclose(steps, steps[0])
    assert np.allclose(np.array(figure.z)[0], np.log10(np.array(figure.x)), atol=0.06)


def test_a_contour_without_values_is_left_alone() -> None:
    figure = go.Contour(x=[1, 2], y=[1, 2], z=[[np.nan] * 2] * 2)
    coarsen(figure, log_x=False, log_y=False)
    assert list(figure.x) == [1, 2]
