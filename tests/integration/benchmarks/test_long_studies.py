"""Long studies of known functions: what is printed is what was found."""

from __future__ import annotations

import math

import optuna
import pytest
from optuna.trial import FixedTrial

from benchmarks.search_cases.long_studies import _OPTIMUM, FUNCTIONS, main


def test_the_functions_are_zero_at_their_optimum() -> None:
    optimum = {f"x{i}": float(each) for i, each in enumerate(_OPTIMUM)}
    assert FUNCTIONS["ellipsoid"](FixedTrial(optimum)) == pytest.approx(0.0, abs=1e-12)  # type: ignore[arg-type]
    assert FUNCTIONS["rosenbrock"](FixedTrial({f"x{i}": 1.0 for i in range(6)})) == 0.0  # type: ignore[arg-type]


def test_choices_have_an_optimum_of_zero_that_one_combination_has() -> None:
    best = math.inf
    for number in range(4**4):
        kinds = [(number // 4**i) % 4 for i in range(4)]
        params: dict[str, object] = {f"k{i}": "abcd"[kind] for i, kind in enumerate(kinds)}
        params |= {f"x{i}": 0.2 + 0.15 * ((kind * 3 + i) % 4) for i, kind in enumerate(kinds)}
        best = min(best, FUNCTIONS["choices"](FixedTrial(params)))  # type: ignore[arg-type]
    assert best == pytest.approx(0.0, abs=1e-12)


def test_a_row_for_each_sampler(capsys: pytest.CaptureFixture[str]) -> None:
    before = optuna.logging.get_verbosity()
    try:
        main(["--samplers", "random", "tpe", "--functions", "hartmann", "--trials", "20"])
    finally:
        optuna.logging.set_verbosity(before)
    header, _, *lines = capsys.readouterr().out.splitlines()
    assert header == "| function | sampler | 20 | ms |"
    assert [line.split(" | ")[1] for line in lines] == ["random", "tpe"]
