"""The same bits as Optuna's own, or Optuna is left alone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from optuna.samplers._tpe import _truncnorm

from tuner.search.samplers import tpe_speedup

_log_ndtr_single = _truncnorm._log_ndtr_single


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    before = _truncnorm._log_ndtr
    yield
    _truncnorm._log_ndtr = before


@pytest.mark.parametrize("scale", [0.1, 1, 5, 30, 1000])
def test_every_bit_is_that_of_optuna(scale: float) -> None:
    numbers = np.random.RandomState(0).normal(size=5000) * scale
    expected = [_log_ndtr_single(number) for number in numbers]
    assert tpe_speedup.log_ndtr(numbers).tolist() == expected


def test_bounds_between_the_cases_are_those_of_optuna() -> None:
    edges = [-20.0, -1.0, 1.0, 6.0]
    numbers = np.array([each for edge in edges for each in (edge, *_beside(edge))])
    expected = [_log_ndtr_single(number) for number in numbers]
    assert tpe_speedup.log_ndtr(numbers).tolist() == expected


def _beside(number: float) -> tuple[float, float]:
    return float(np.nextafter(number, -np.inf)), float(np.nextafter(number, np.inf))


def test_no_numbers_give_none() -> None:
    assert tpe_speedup.log_ndtr(np.array([])).size == 0


def test_shape_is_kept() -> None:
    assert tpe_speedup.log_ndtr(np.zeros((2, 3))).shape == (2, 3)


def test_optuna_uses_it() -> None:
    assert tpe_speedup.use_in_optuna()
    assert tpe_speedup.use_in_optuna()
    assert _truncnorm._log_ndtr is tpe_speedup.log_ndtr


def test_optuna_that_computes_it_otherwise_is_left_alone() -> None:
    other = np.exp
    _truncnorm._log_ndtr = other
    assert not tpe_speedup.use_in_optuna()
    assert _truncnorm._log_ndtr is other


def test_optuna_that_has_it_no_more_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(_truncnorm, "_log_ndtr")
    assert not tpe_speedup.use_in_optuna()
    assert not hasattr(_truncnorm, "_log_ndtr")
    monkeypatch.undo()
