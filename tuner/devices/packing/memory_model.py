"""Predicts an attempt's peak memory from its parameters and earlier observations.

The prediction is an upper estimate. If it is too low, an attempt runs out of memory; if it is too
high, some room is wasted. The goal is to be too low in a few of a hundred cases.

The logarithm of the peak is fitted by ridge regression: there a product of parameters, such as
batch size times width squared, is a sum. Leave-one-out residuals, which ridge regression has in
closed form (Golub, Heath and Wahba 1979), select the terms and the penalty and set the margin.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tuner.devices.packing.features import Array, Encoding, Point, encoding_of, key_of, point_of
from tuner.search_spaces import ParamValue

_Pairs: TypeAlias = tuple[NDArray[np.intp], NDArray[np.intp]]

#: The newest configurations that are kept, and the fewest that a regression is fitted to.
_MAX_SAMPLE = 512
_MIN_FIT = 8
#: A fit is renewed after as many new observations as this part of the sample.
_REFIT_SHARE = 1 / 16
#: An attempt that ran out of memory needs an unknown amount more than it had.
_OUT_OF_MEMORY_FACTOR = 1.25
#: Minimum margin of each prediction, even if the whole sample agrees.
_MIN_MARGIN = 0.02
#: Attempts whose parameters differ by less than this fraction of the observed range are alike.
_ALIKE = 0.02
#: Columns that have squares and products: eight have 36.
_MAX_CURVED = 8
_PENALTIES = (1e-3, 1e-2, 1e-1, 1.0, 100.0)
#: Beyond it the ridge penalty, and not the data, makes the leverage.
_MAX_LEVERAGE = 4.0
#: Outside of the range seen: steeper than at its end, and wider in any case.
_STEEPER = 1.5
_WIDER = 0.25
#: An exabyte: limit of extrapolation.
_MAX_LOG = math.log(2.0**60)


class MemoryModel:
    """Learns the peak memory of the attempts of one program, by their parameters."""

    def __init__(self) -> None:
        #: The newest last. Equal parameters are one observation, of the largest peak.
        self._seen: dict[str, _Seen] = {}
        self._fit: _Fit | None = None
        self._n_new = 0

    def observe(
        self, params: Mapping[str, ParamValue], peak_bytes: int, *, is_final: bool = True
    ) -> None:
        """Adds an observation.

        Args:
            params: Parameters of the attempt.
            peak_bytes: Its peak memory; 0 is no observation.
            is_final: False while it runs and may still grow: then no regression uses it.
        """
        if peak_bytes > 0:
            self._learn(params, peak_bytes, is_final=is_final)

    def observe_out_of_memory(self, params: Mapping[str, ParamValue], had_bytes: int) -> None:
        """An attempt that had so much got no more: it needs more."""
        if had_bytes > 0:
            peak_bytes = math.ceil(had_bytes * _OUT_OF_MEMORY_FACTOR)
            self._learn(params, peak_bytes, is_final=True)

    def predict(self, params: Mapping[str, ParamValue]) -> int | None:
        """An upper estimate of an attempt's peak in bytes; None before the first observation."""
        if not self._seen:
            return None
        self._renew()
        point = point_of(params)
        same = self._seen.get(key_of(params))
        if self._fit is not None:
            upper_bytes = self._fit.upper_bytes(point)
        elif same is not None and same.is_final:
            upper_bytes = 0.0
        else:
            upper_bytes = _cautious_bytes([seen.peak_bytes for seen in self._seen.values()])
        return math.ceil(max(upper_bytes, _with_margin(same.peak_bytes) if same else 0.0))

    def _learn(self, params: Mapping[str, ParamValue], peak_bytes: int, *, is_final: bool) -> None:
        key, point = key_of(params), point_of(params)
        before = self._seen.pop(key, None)
        if before is not None:
            peak_bytes = max(peak_bytes, before.peak_bytes)
            is_final = is_final or before.is_final
        now = self._seen[key] = _Seen(point=point, peak_bytes=peak_bytes, is_final=is_final)
        if len(self._seen) > _MAX_SAMPLE:
            del self._seen[next(iter(self._seen))]
        if now != before and is_final:
            self._n_new += 1 if self._is_expected(now) else _MAX_SAMPLE

    def _is_expected(self, seen: _Seen) -> bool:
        return self._fit is not None and seen.peak_bytes <= self._fit.upper_bytes(seen.point)

    def _renew(self) -> None:
        """Refits if there are enough new observations, or one was above its estimate."""
        if self._n_new <= len(self._seen) * _REFIT_SHARE:
            return
        self._n_new = 0
        sample = [seen for seen in self._seen.values() if seen.is_final]
        if len(sample) >= _MIN_FIT:
            self._fit = _fit(sample)


def _with_margin(peak_bytes: float) -> float:
    return peak_bytes * (1 + _MIN_MARGIN)


def _cautious_bytes(peaks: Sequence[int]) -> float:
    """More than any of n peaks; how much more has to shrink slower than the chance, 1/(n+1)."""
    return max(peaks) * (1 + 2 / math.sqrt(len(peaks)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    point: Point
    peak_bytes: int
    is_final: bool


# -- the regression ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ridge:
    """A ridge regression on standardized terms."""

    mean: Array
    scale: Array
    intercept: float
    slopes: Array
    #: Root mean square of the leave-one-out residuals.
    error: float
    #: Its product with a row of terms has the row's leverage as its square.
    leverage_root: Array

    def at(self, terms: Array) -> float:
        return self.intercept + float((terms - self.mean) / self.scale @ self.slopes)

    def leverage(self, terms: Array) -> float:
        parts = (terms - self.mean) / self.scale @ self.leverage_root
        return float(parts @ parts)


def _best_ridge(terms: Array, target: Array) -> _Ridge:
    """The penalty with the smallest leave-one-out error."""
    n_rows = len(target)
    deviation = terms.std(axis=0)
    scale = np.where(deviation > 1e-9, deviation, 1.0)
    mean, intercept = terms.mean(axis=0), float(target.mean())
    centered = (terms - mean) / scale
    powers, axes = np.linalg.eigh(centered.T @ centered)
    turned = centered @ axes
    tie = turned.T @ (target - intercept)
    ridges = []
    for penalty in _PENALTIES:
        shrink = 1 / (np.maximum(powers, 0) + penalty * n_rows)
        left_out = np.maximum(1 - 1 / n_rows - turned**2 @ shrink, 1e-3)
        residuals = (target - intercept - turned @ (shrink * tie)) / left_out
        ridge = _Ridge(
            mean=mean,
            scale=scale,
            intercept=intercept,
            slopes=axes @ (shrink * tie),
            error=math.sqrt(np.mean(residuals**2)),
            leverage_root=axes * np.sqrt(shrink),
        )
        ridges.append(ridge)
    return min(ridges, key=lambda ridge: ridge.error)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fit:
    """A regression with all that a prediction needs."""

    encoding: Encoding
    #: [observations, columns]
    rows: Array
    peaks_bytes: Array
    #: The columns to multiply for squares and products; empty for a plain regression.
    pairs: _Pairs
    ridge: _Ridge
    #: An upper bound for estimates within the observed range, above all observations.
    cautious_bytes: float

    def upper_bytes(self, point: Point) -> float:
        row = self.encoding.rows([point])[0]
        log_peak = self._at(row.clip(0, 1)) + self._margin(row)
        log_peak = min(log_peak, math.log(self.cautious_bytes)) + self._climb(row)
        return max(math.exp(min(log_peak, _MAX_LOG)), self._floor_bytes(point, row))

    def _at(self, row: Array) -> float:
        return self.ridge.at(_terms(row, self.pairs))

    def _margin(self, row: Array) -> float:
        leverage = min(_MAX_LEVERAGE, self.ridge.leverage(_terms(row.clip(-1, 2), self.pairs)))
        # Two standard errors, and for few observations more, as Student's t has it.
        errors = 2 + 8 / len(self.rows)
        return _MIN_MARGIN + errors * self.ridge.error * math.sqrt(1 + leverage)

    def _climb(self, row: Array) -> float:
        """Extrapolates outside the observed range: upward where the fit rises, never down."""
        inside = row.clip(0, 1)
        climb = 0.0
        for column in np.flatnonzero(row != inside):
            inner = inside.copy()
            inner[column] += 0.1 if row[column] < 0 else -0.1
            slope = max(0.0, (self._at(inside) - self._at(inner)) / 0.1)
            climb += abs(row[column] - inside[column]) * (_STEEPER * slope + _WIDER)
        return climb

    def _floor_bytes(self, point: Point, row: Array) -> float:
        if not self.encoding.is_known(point):
            return _with_margin(float(self.peaks_bytes.max()))
        is_alike = np.all(np.abs(self.rows - row) <= _ALIKE, axis=1)
        return _with_margin(float(self.peaks_bytes[is_alike].max(initial=0.0)))


def _fit(sample: Sequence[_Seen]) -> _Fit:
    points = [seen.point for seen in sample]
    peaks = [seen.peak_bytes for seen in sample]
    encoding = encoding_of(points)
    rows, target = encoding.rows(points), np.log(peaks)
    candidates = [
        (pairs, _best_ridge(_terms(rows, pairs), target))
        for pairs in (_pairs(rows, target, n_columns=n) for n in (0, _MAX_CURVED))
    ]
    pairs, ridge = min(candidates, key=lambda candidate: candidate[1].error)
    return _Fit(
        encoding=encoding,
        rows=rows,
        peaks_bytes=np.array(peaks, dtype=np.float64),
        pairs=pairs,
        ridge=ridge,
        cautious_bytes=_cautious_bytes(peaks),
    )


def _terms(rows: Array, pairs: _Pairs) -> Array:
    """Rows with added squares and products."""
    left, right = pairs
    return np.concatenate([rows, rows[..., left] * rows[..., right]], axis=-1)


def _pairs(rows: Array, target: Array, *, n_columns: int) -> _Pairs:
    """All pairs of the columns that go with the target most."""
    centered = rows - rows.mean(axis=0)
    lengths = np.maximum(np.sqrt((centered**2).sum(axis=0)), 1e-9)
    ties = np.abs((target - target.mean()) @ centered) / lengths
    strongest = np.argsort(-ties, kind="stable")[:n_columns]
    left, right = np.triu_indices(len(strongest))
    return strongest[left], strongest[right]
