"""Spread of the best configurations: distances of the next best ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tuner.app.data.trials.columns import TrialColumns

N_TOP = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The spread of the best trials of one objective, the best first."""

    numbers: tuple[int, ...]
    values: tuple[float, ...]
    #: Distance between the best and the last of them.
    width: float
    #: Share of the range of all completed values that this is, 0 to 1.
    share: float


def spread_of(trials: TrialColumns, *, is_maximized: bool, n: int = N_TOP) -> Spread | None:
    """None if fewer than two trials have completed."""
    able = trials.where(trials.is_candidate)
    if len(able) < 2:
        return None
    values = able.values[:, 0]
    order = np.argsort(-values if is_maximized else values, kind="stable")[:n]
    top = values[order]
    width, whole = float(abs(top[-1] - top[0])), float(values.max() - values.min())
    return Spread(
        numbers=tuple(able.numbers[order].tolist()),
        values=tuple(top.tolist()),
        width=width,
        share=width / whole if whole else 0.0,
    )


def sparkline(trials: TrialColumns, *, is_maximized: bool, n_points: int = 40) -> list[float]:
    """The best value so far, at `n_points` positions."""
    able = trials.where(trials.is_candidate)
    if not len(able):
        return []
    values = able.values[:, 0]
    best = np.maximum.accumulate(values) if is_maximized else np.minimum.accumulate(values)
    at = np.unique(np.linspace(0, len(best) - 1, min(n_points, len(best))).astype(np.int64))
    line: list[float] = best[at].tolist()
    return line


def time_left_s(fraction: float | None, worked_s: float, *, is_running: bool) -> float | None:
    """Seconds until the budget is spent at the rate so far; None if unknown."""
    if not is_running or not fraction or worked_s <= 0:
        return None
    return worked_s * (1 - fraction) / fraction
