"""The benchmark of configurations that fail: what it says of a search is so."""

from __future__ import annotations

import math

import numpy as np
import pytest
from optuna.samplers import RandomSampler

from benchmarks.search_cases.failing import PROGRAMS, main, scale_of, searched
from tuner.search.samplers.curve_gp.sampler import CurveGPSampler

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning"),
]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_best_works_and_lies_near_what_fails(name: str) -> None:
    program = PROGRAMS[name]
    best, median = scale_of(program)
    assert best < median
    rows = np.random.default_rng(1).random((2000, program.dimensions))
    assert 0.2 < sum(program.works(row) for row in rows) / 2000 < 0.9
    assert min(program.value(row) for row in rows if program.works(row)) >= best


def test_a_trial_that_fails_has_no_value() -> None:
    found = searched(PROGRAMS["diverges"], RandomSampler(seed=0), 20)
    assert len(found) == 20
    assert 0 < sum(map(math.isinf, found)) < 20


def test_the_model_finds_more_than_chance() -> None:
    program = PROGRAMS["memory"]
    model = min(searched(program, CurveGPSampler(seed=0), 24))
    assert model < min(searched(program, RandomSampler(seed=0), 24))


def test_a_row_for_each_sampler(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--seeds", "1", "--trials", "4", "--samplers", "random", "curve_gp: the worst value"])
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert [row.split(" | ")[0] for row in rows] == [
        "| sampler",
        "| random",
        "| curve_gp: the worst value",
    ]
