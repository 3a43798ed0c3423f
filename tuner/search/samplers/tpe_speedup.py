"""The logarithm of the normal distribution function, as Optuna's TPE computes it, in arrays.

Optuna computes it number by number in Python, which takes most of the time of a suggestion: about
twenty times per trial, for each integer parameter. Here each step is the same operation on the same
numbers, so that the results are the same to the last bit, in a third of the time.
"""

from __future__ import annotations

import math
import sys
from typing import Any, TypeAlias, cast

import numpy as np

from tuner.store.optuna_compat import replace_tpe_log_ndtr, tpe_log_ndtr

Floats: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"

# NumPy's own can differ from the standard library's in the last bit.
_erf, _erfc, _log = (np.frompyfunc(each, 1, 1) for each in (math.erf, math.erfc, math.log))
_pow = np.frompyfunc(math.pow, 2, 1)

_PROBES = np.array([-300.0, -40.5, -20.0, -19.9, -5.0, -1.1, -0.9, -0.0, 0.3, 1.4, 6.0, 6.1, 30.0])


def use_in_optuna() -> bool:
    """Makes Optuna's TPE use this function; returns whether it does. Safe to call twice.

    If Optuna no longer has the function, or computes it differently, nothing is changed.
    """
    theirs = tpe_log_ndtr()
    if theirs is None or not np.array_equal(theirs(_PROBES), log_ndtr(_PROBES)):
        return False
    replace_tpe_log_ndtr(log_ndtr)
    return True


def log_ndtr(a: Floats) -> Floats:
    """log of the probability that a standard normal variable is below each of `a`."""
    a = np.asarray(a, dtype=float)
    result = np.empty_like(a)
    far_right, far_left = a > 6, a <= -20
    center = ~(far_right | far_left)
    result[far_right] = -_ndtr(-a[far_right])
    result[center] = _exact(_log(_ndtr(a[center])))
    result[far_left] = _in_left_tail(a[far_left])
    return result


def _ndtr(a: Floats) -> Floats:
    x = a / 2**0.5
    result = np.empty_like(x)
    left, right = x < -1 / 2**0.5, x >= 1 / 2**0.5
    center = ~(left | right)
    result[left] = 0.5 * _exact(_erfc(-x[left]))
    result[center] = 0.5 + 0.5 * _exact(_erf(x[center]))
    result[right] = 1.0 - 0.5 * _exact(_erfc(x[right]))
    return result


def _in_left_tail(a: Floats) -> Floats:
    """The asymptotic series, each until its terms no longer count."""
    square = _exact(_pow(a, 2))
    before_series = -0.5 * square - _exact(_log(-a)) - 0.5 * math.log(2 * math.pi)
    sums, factor, numerator = np.ones_like(a), np.ones_like(a), 1.0
    inverse = 1 / square
    open_ = np.arange(a.size)
    sign = i = 1
    while open_.size:
        sign, numerator = -sign, numerator * (2 * i - 1)
        i += 1
        factor[open_] *= inverse[open_]
        before = sums[open_]
        sums[open_] += sign * numerator * factor[open_]
        open_ = open_[np.abs(before - sums[open_]) > sys.float_info.epsilon]
    return before_series + _exact(_log(sums))


def _exact(numbers: object) -> Floats:
    return cast(Floats, np.asarray(numbers, dtype=float))
