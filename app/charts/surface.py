"""The surface of a contour plot, on a grid that a browser draws at once.

Optuna's contour has a row and a column for each trial, nearly all of them empty, and Plotly takes
seconds to fill those of 250 trials in the browser. Here cells hold the mean of their trials, and
the server fills those without a trial.
"""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from tuner.app.data.columns import Floats, Numbers

#: Rows and columns; an axis of fewer different values has one for each of them.
_N_CELLS = 40
_N_ROUNDS = 200


def coarsen(contour: go.Contour, *, log_x: bool, log_y: bool) -> None:
    """Replaces a contour's grid by a coarse one without gaps.

    Args:
        contour: Optuna's, with NaN where no trial is.
        log_x: Whether its x axis is logarithmic.
        log_y: Whether its y axis is logarithmic.
    """
    values = np.array(contour.z, dtype=np.float64)
    rows, columns = np.nonzero(np.isfinite(values))
    if not len(rows):
        return
    x, x_cells = _grid(contour.x, is_log=log_x)
    y, y_cells = _grid(contour.y, is_log=log_y)
    contour.x, contour.y = x, y
    contour.z = _filled(y_cells[rows], x_cells[columns], values[rows, columns], (len(y), len(x)))
    contour.connectgaps = False


def _grid(axis: tuple[object, ...], *, is_log: bool) -> tuple[list[object], Numbers]:
    """Values of the new grid, and the new place of each value of the old one."""
    if len(axis) <= _N_CELLS or not all(isinstance(each, int | float) for each in axis):
        return list(axis), np.arange(len(axis))
    places = np.array(axis, dtype=np.float64)
    if is_log:
        places = np.log10(places)
    even = np.linspace(places[0], places[-1], _N_CELLS)
    nearest = np.abs(places[:, None] - even[None, :]).argmin(axis=1)
    return (10**even if is_log else even).tolist(), nearest


def _filled(rows: Numbers, columns: Numbers, values: Floats, shape: tuple[int, int]) -> Floats:
    """Means of cells; cells without a value get that of their surroundings."""
    flat = rows * shape[1] + columns
    n_values = np.bincount(flat, minlength=shape[0] * shape[1])
    sums = np.bincount(flat, weights=values, minlength=len(n_values))
    known = n_values > 0
    at = np.flatnonzero(known)
    means = sums[at] / n_values[at]
    every_row, every_column = np.divmod(np.arange(len(n_values)), shape[1])
    known_row, known_column = np.divmod(at, shape[1])
    apart = (every_row[:, None] - known_row) ** 2 + (every_column[:, None] - known_column) ** 2
    surface: Floats = means[apart.argmin(axis=1)].reshape(shape)
    is_known = known.reshape(shape)
    fixed = surface.copy()
    for _ in range(_N_ROUNDS):
        wide = np.pad(surface, 1, mode="edge")
        mean = (wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:]) / 4
        surface = np.where(is_known, fixed, mean)
    return surface
