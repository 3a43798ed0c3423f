"""Distribution of values over trials, and number of trials that ended per time bin."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tuner.app.data.columns import Flags, Floats
from tuner.app.data.trials.columns import TrialColumns
from tuner.domain.budget import SECONDS_PER_HOUR

_MAX_BARS = 60
#: Possible widths of a bar in seconds; the smallest that gives few enough bars is used.
_LENGTHS_S = tuple(
    60.0 * minutes for minutes in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440)
)
_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Distribution:
    """An empirical distribution function: the share of values that are at most x."""

    x: Floats
    share: Floats


def distribution_of(values: Floats) -> Distribution:
    """The distribution of the finite values."""
    ordered = np.sort(values[np.isfinite(values)])
    n = len(ordered)
    return Distribution(x=ordered, share=np.arange(1, n + 1) / n if n else np.empty(0))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rates:
    """Trials that ended, by stretches of time."""

    #: Start of each bar, in hours since the first trial started.
    begin_h: Floats
    #: Width of each bar in hours; the last one ends with the newest trial, or now.
    length_h: Floats
    #: The length of all bars but the last one.
    whole_h: float


def rates_of(trials: TrialColumns, now_s: float) -> Rates | None:
    """Rates; None if no trial has ended.

    Args:
        trials: All trials of a study.
        now_s: The current time, in seconds since the epoch: end of the last bar while a trial runs.
    """
    ended = trials.ended_at_s[trials.is_finished]
    if not len(ended):
        return None
    first_s = _first_s(trials)
    last_s = float(ended.max())
    if not trials.is_finished.all() and not np.isnan(trials.open_since_s).all():
        last_s = max(last_s, now_s)
    span_s = max(last_s - first_s, 1.0)
    length_s = next((each for each in _LENGTHS_S if span_s <= _MAX_BARS * each), None)
    if length_s is None:
        length_s = _DAY_S * np.ceil(span_s / _DAY_S / _MAX_BARS)
    begins = np.arange(0.0, span_s, length_s)
    ends = np.minimum(begins + length_s, span_s)
    return Rates(
        begin_h=begins / SECONDS_PER_HOUR,
        length_h=(ends - begins) / SECONDS_PER_HOUR,
        whole_h=length_s / SECONDS_PER_HOUR,
    )


def ended_in(rates: Rates, trials: TrialColumns, chosen: Flags) -> Floats:
    """Number of some finished trials that ended in each bar."""
    ended_h = (trials.ended_at_s[chosen & trials.is_finished] - _first_s(trials)) / SECONDS_PER_HOUR
    places = np.searchsorted(rates.begin_h, ended_h, side="right") - 1
    return np.bincount(places, minlength=len(rates.begin_h)).astype(np.float64)


def _first_s(trials: TrialColumns) -> float:
    """The first start; of trials that were added without one, the first end."""
    starts = trials.started_at_s[~np.isnan(trials.started_at_s)]
    ends = trials.ended_at_s[trials.is_finished]
    return float(min(starts.min() if len(starts) else ends.min(), ends.min()))
