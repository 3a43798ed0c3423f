"""Recorded learning curves, and interpolated curves of configurations between them."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from optuna.distributions import CategoricalDistribution, IntDistribution

from tuner.errors import ConfigError
from tuner.search_spaces import Parameter, ParamValue, SearchSpace

Floats = npt.NDArray[np.float64]

#: Nearest recorded configurations that a curve is made of.
N_NEAR = 64
#: Singular values of the equations below this fraction of the largest are taken as zero: rows with
#: the same configuration then share their weight.
_SINGULAR = 1e-10
_KEYS = ("names", "x", "value", "seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Reports of one training, with times."""

    #: [n_steps]
    values: Floats
    #: [n_steps], seconds since the training started.
    seconds: Floats
    #: [n_steps], as they are reported, in their order; None: 1, 2, 3 ...
    steps: npt.NDArray[np.int64] | None = None
    #: Final value; None for the last value.
    final: float | None = None
    #: Whether the curve is a complete training; else it ends where the trial was pruned.
    is_whole: bool = True

    @property
    def n_steps(self) -> int:
        return len(self.values)

    @property
    def end(self) -> float:
        """Final value."""
        return float(self.values[-1]) if self.final is None else self.final

    def step(self, place: int) -> int:
        """The step that is reported `place`-th, from 1."""
        return place if self.steps is None else int(self.steps[place - 1])


class Curves(Protocol):
    """Curves of a program's configurations."""

    def curve(self, params: Mapping[str, ParamValue]) -> Curve: ...


class CurveTable:
    """Curves of many configurations of one program.

    Other configurations get the value of a thin plate spline through their nearest ones (Duchon,
    1977), with each parameter scaled to its range (logarithmic if the space is). No value is beyond
    those of the nearest ones. Where the nearest one is NaN or infinite, so is the curve.

    Args:
        space: The study's space; each of its parameters must be in the table.
        names: Parameters, in the order of the columns of `x`.
        x: [n, n_names], the configurations.
        values: [n, n_steps], reported values.
        seconds: [n, n_steps], seconds since the start of the training.

    Raises:
        ConfigError: If the table lacks a parameter of the space, or a shape is wrong.
    """

    def __init__(
        self,
        space: SearchSpace,
        *,
        names: Sequence[str],
        x: Floats,
        values: Floats,
        seconds: Floats,
    ) -> None:
        _check_shapes(names, x, values, seconds)
        self._parameters = space.parameters
        for parameter in self._parameters:
            _check_parameter(parameter, names)
        columns = [list(names).index(each.name) for each in self._parameters]
        scaled = [_scaled(p, x[:, i]) for p, i in zip(self._parameters, columns, strict=True)]
        #: [n, n_parameters], the configurations with each parameter scaled to its range.
        self.points: Floats = np.stack(scaled, axis=1)
        self._squares: Floats = (self.points**2).sum(axis=1)
        self._values, self._seconds = values, seconds
        self._raw = x[:, columns]

    def params(self, row: int) -> dict[str, ParamValue]:
        """A configuration as recorded."""
        return {
            each.name: int(value)
            if isinstance(each.distribution, IntDistribution)
            else min(max(float(value), each.distribution.low), each.distribution.high)
            for each, value in zip(self._parameters, self._raw[row], strict=True)
            if not isinstance(each.distribution, CategoricalDistribution)
        }

    @property
    def values(self) -> Floats:
        """[n, n_steps], as recorded."""
        return self._values

    @property
    def full_seconds(self) -> Floats:
        """[n], durations of the complete trainings."""
        return np.asarray(self._seconds[:, -1])

    def curve(self, params: Mapping[str, ParamValue]) -> Curve:
        """The curve of a configuration."""
        point = [
            float(_scaled(each, np.array([params[each.name]], dtype=float))[0])
            for each in self._parameters
        ]
        # |a - b|^2 = |a|^2 - 2 ab + |b|^2: one product in place of a table of differences.
        at = np.array(point)
        distances = np.maximum(0.0, self._squares - 2.0 * (self.points @ at) + at @ at)
        near = np.argsort(distances)[:N_NEAR]
        # Trainings that diverge predict nothing for those that do not.
        is_number = np.isfinite(self._values[near])
        near = near[(is_number == is_number[0]).all(axis=1)]
        values = self._values[near]
        weights = _spline_weights(self.points[near] - at)
        numbers = np.where(is_number[0], values, 0.0)
        return Curve(
            values=np.where(is_number[0], _between(numbers, weights), values[0]),
            # A spline may fall where times hardly grow.
            seconds=np.maximum.accumulate(_between(self._seconds[near], weights)),
        )


def _between(rows: Floats, weights: Floats) -> Floats:
    """[n_steps], the weighted sum of rows, held within their range at each step."""
    return np.clip(weights @ rows, rows.min(axis=0), rows.max(axis=0))


def _spline_weights(offsets: Floats) -> Floats:
    """[n], weights of the points in the value of the thin plate spline at the origin.

    The spline bends least of all functions through the points. Its weights depend on their places
    only, so one solution serves all steps.

    Source: Duchon, "Splines minimizing rotation-invariant semi-norms in Sobolev spaces" (1977).

    Args:
        offsets: [n, d], the points.
    """
    n = len(offsets)
    offsets = offsets / (np.linalg.norm(offsets, axis=1).max() or 1.0)
    linear = np.concatenate([np.ones((n, 1)), offsets], axis=1)
    between = np.linalg.norm(offsets[:, None] - offsets, axis=2)
    equations = np.block([[_plate(between), linear], [linear.T, np.zeros((linear.shape[1],) * 2)]])
    from_origin = _plate(np.linalg.norm(offsets, axis=1))
    wanted = np.concatenate([from_origin, [1.0], np.zeros(linear.shape[1] - 1)])
    # Least squares and not an inverse: neighbors may agree in a parameter, or be the same point.
    return np.asarray(np.linalg.lstsq(equations, wanted, rcond=_SINGULAR)[0][:n])


def _plate(distances: Floats) -> Floats:
    """r² log r, which is 0 at 0."""
    return distances**2 * np.log(np.maximum(distances, np.finfo(float).tiny))


def read_table(path: Path, space: SearchSpace) -> CurveTable:
    """Reads a table from a `.npz` file with `names`, `x`, `value` and `seconds`.

    Raises:
        ConfigError: If it cannot be read, or does not fit the space.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            missing = [key for key in _KEYS if key not in file]
            if missing:
                raise ConfigError(
                    f"{path} has no {', '.join(missing)}. A table of curves has names [d], "
                    "x [n, d], value [n, steps] and seconds [n, steps]."
                )
            arrays: dict[str, Any] = {key: file[key] for key in _KEYS}
    except FileNotFoundError as error:
        raise ConfigError(f"There is no file {path}.", key="--curves") from error
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        # numpy's own text recommends to load such a file as a pickle.
        raise ConfigError(
            f"{path} is not an .npz file of plain arrays. Write it with numpy.savez, "
            "without object arrays.",
            key="--curves",
        ) from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.", key="--curves") from error
    return CurveTable(
        space,
        names=[str(name) for name in arrays["names"]],
        x=np.asarray(arrays["x"], dtype=float),
        values=np.asarray(arrays["value"], dtype=float),
        seconds=np.asarray(arrays["seconds"], dtype=float),
    )


def _check_shapes(names: Sequence[str], x: Floats, values: Floats, seconds: Floats) -> None:
    n = len(x)
    is_right = x.ndim == values.ndim == 2 and x.shape[1] == len(names) and len(values) == n
    if not is_right or seconds.shape != values.shape or n < 2 or values.shape[1] < 1:
        raise ConfigError(
            f"The table has {len(names)} names, x {x.shape}, value {values.shape} and seconds "
            f"{seconds.shape}, but must have [d], [n, d], [n, steps] and [n, steps], n from 2.",
            key="--curves",
        )
    if not (np.isfinite(seconds).all() and (np.diff(seconds, axis=1) >= 0).all()):
        raise ConfigError("seconds must grow along each curve.", key="--curves")


def _check_parameter(parameter: Parameter, names: Sequence[str]) -> None:
    if parameter.name not in names:
        raise ConfigError(
            f"The space has {parameter.name!r}, but the table has {', '.join(names)}. "
            "Name the columns as the study file does.",
            key="--curves",
        )
    if isinstance(parameter.distribution, CategoricalDistribution):
        raise ConfigError(
            f"{parameter.name!r} is categorical, and a table has numbers. Give it as an int.",
            key="--curves",
        )


def _scaled(parameter: Parameter, column: Floats) -> Floats:
    """0 to 1 between the ends of the parameter's range."""
    distribution = parameter.distribution
    assert not isinstance(distribution, CategoricalDistribution)
    low, high = float(distribution.low), float(distribution.high)
    if distribution.log:
        low, high, column = math.log(low), math.log(high), np.log(np.maximum(column, 1e-300))
    return np.asarray((column - low) / ((high - low) or 1.0))
