"""Convergence of a study: the best value so far against its cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from tuner.app.data.columns import Flags, Floats, Numbers
from tuner.app.data.devices.leases import Leases
from tuner.app.data.trials.columns import TrialColumns
from tuner.domain.pareto_front import is_on_front

_SECONDS_PER_HOUR = 3600.0
#: The largest unit of which there are at least two, and seconds below that.
_UNITS = ((86_400.0, "d"), (_SECONDS_PER_HOUR, "h"), (60.0, "min"))


class Axis(Enum):
    """Kinds of cost."""

    TRIALS = "trials"
    TIME = "wall time"
    DEVICE_HOURS = "device-hours"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scale:
    """The horizontal axis, with a value for each trial; NaN for missing ones."""

    title: str
    values: Floats
    #: Length of the unit of wall time, in seconds.
    unit_s: float = 1.0
    #: Whether the values are numbers of trials.
    is_counted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BestSoFar:
    """A staircase: positions where the best value changed, and its end."""

    x: Floats
    y: Floats
    #: Number of the trial that was the best from there on.
    numbers: Numbers


def scale_of(
    trials: TrialColumns, axis: Axis, leases: Leases | None, *, unit_s: float | None = None
) -> Scale:
    """The values of an axis.

    Args:
        trials: All trials of a study.
        axis: The axis.
        leases: The study's leases; needed only for device-hours.
        unit_s: Unit of wall time in seconds; None for one that fits.
    """
    if axis is Axis.TRIALS:
        return Scale(
            title="Trial (number)", values=trials.numbers.astype(np.float64), is_counted=True
        )
    if axis is Axis.TIME:
        begun = trials.started_at_s[~np.isnan(trials.started_at_s)]
        elapsed = trials.placed_at_s - (begun.min() if len(begun) else 0.0)
        seconds, unit = unit_of(float(np.nanmax(elapsed)) if trials.is_placed.any() else 0.0)
        seconds = unit_s or seconds
        title = f"Time since the first trial began ({unit})"
        return Scale(title=title, values=elapsed / seconds, unit_s=seconds)
    used_h = used_device_s(leases, trials.placed_at_s) / _SECONDS_PER_HOUR
    return Scale(title="Spent on devices (device-hours)", values=used_h)


def unit_of(largest_s: float) -> tuple[float, str]:
    """A unit for durations up to some seconds: how long it is, and its sign."""
    return next(((s, name) for s, name in _UNITS if largest_s >= 2 * s), (1.0, "s"))


def used_device_s(leases: Leases | None, instants_s: Floats) -> Floats:
    """Device-seconds used by all leases at some times; NaN for unknown."""
    if leases is None or not len(leases.columns):
        return np.full(len(instants_s), np.nan)
    columns, ends = leases.columns, leases.ends_s()
    known = ~np.isnan(ends)
    shares = columns.shares[known]
    at = np.concatenate([columns.started_at_s[known], ends[known]])
    rates = np.concatenate([shares, -shares])
    order = np.argsort(at, kind="stable")
    at, rates = at[order], np.cumsum(rates[order])
    used = np.concatenate([[0.0], np.cumsum(np.diff(at) * rates[:-1])])
    return np.where(np.isnan(instants_s), np.nan, np.interp(instants_s, at, used))


def best_so_far(
    trials: TrialColumns, scale: Scale, objective: int, *, is_maximized: bool
) -> BestSoFar:
    """The best value so far in the order of the axis, up to the last trial that ended."""
    there = trials.is_finished & ~np.isnan(scale.values)
    order = np.argsort(scale.values[there], kind="stable")
    x, numbers = scale.values[there][order], trials.numbers[there][order]
    sign = -1.0 if is_maximized else 1.0
    values = np.where(trials.is_candidate, sign * trials.values[:, objective], np.inf)[there][order]
    best = np.minimum.accumulate(values) if len(values) else values
    is_step = best < np.concatenate([[np.inf], best[:-1]])[: len(best)]
    x_steps, y_steps, at = x[is_step], sign * best[is_step], numbers[is_step]
    if len(x_steps):
        x_steps = np.append(x_steps, x[-1])
        y_steps, at = np.append(y_steps, y_steps[-1]), np.append(at, at[-1])
    return BestSoFar(x=x_steps, y=y_steps, numbers=at)


def pareto_front(trials: TrialColumns, is_maximized: Sequence[bool]) -> Flags:
    """The Pareto front.

    Args:
        trials: A study's trials.
        is_maximized: By objective.
    """
    signs = np.where(np.array(is_maximized, dtype=bool), -1.0, 1.0)
    candidates = np.flatnonzero(trials.is_candidate)
    front = np.zeros(len(trials), dtype=np.bool_)
    front[candidates] = is_on_front(trials.values[candidates] * signs)
    return front


def can_be_logarithmic(values: Floats) -> bool:
    """Whether each value that is there has a place on such an axis."""
    finite = values[np.isfinite(values)]
    return bool(len(finite)) and bool((finite > 0).all())
