"""Samplers that stand around one of Optuna's pass the test cases that Optuna has for its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from optuna.samplers import BaseSampler, TPESampler
from optuna.testing.pytest_samplers import (
    BasicSamplerTestCase,
    MultiObjectiveSamplerTestCase,
    RelativeSamplerTestCase,
)

from tuner.search.samplers.bounded import BoundedSampler, bounded
from tuner.search.samplers.curve_gp.sampler import CurveGPSampler
from tuner.search.samplers.prior import PriorSampler

pytestmark = [
    pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning"),
    pytest.mark.slow,
]

#: Of parameters that these test cases have; some of their ranges hold the guess, and some do not.
GUESS = {"x": 0.5, "y": 1, "a": 1, "b": 3}


def bounded_tpe(*, multivariate: bool) -> BaseSampler:
    tpe = TPESampler(seed=1, n_startup_trials=0, multivariate=multivariate)
    sampler = bounded(tpe, seed=1)
    assert isinstance(sampler, BoundedSampler)
    return sampler


@pytest.mark.nightly
class TestBounded(BasicSamplerTestCase, MultiObjectiveSamplerTestCase):
    @pytest.fixture
    def sampler(self) -> Callable[[], BaseSampler]:
        return lambda: bounded_tpe(multivariate=False)


class TestBoundedOfAllParameters(RelativeSamplerTestCase, MultiObjectiveSamplerTestCase):
    @pytest.fixture
    def sampler(self) -> Callable[[], BaseSampler]:
        return lambda: bounded_tpe(multivariate=True)


class TestSeveralObjectivesWithAPrior(MultiObjectiveSamplerTestCase):
    @pytest.fixture
    def sampler(self) -> Callable[[], BaseSampler]:
        return lambda: PriorSampler(bounded_tpe(multivariate=False), GUESS, seed=1)


@pytest.mark.nightly
class TestWithAPrior(BasicSamplerTestCase):
    @pytest.fixture
    def sampler(self) -> Callable[[], BaseSampler]:
        return lambda: PriorSampler(bounded_tpe(multivariate=False), GUESS, seed=1)


class TestCurveGPWithAPrior(BasicSamplerTestCase):
    @pytest.fixture
    def sampler(self) -> Callable[[], BaseSampler]:
        return lambda: PriorSampler(CurveGPSampler(seed=1, n_startup_trials=1), GUESS, seed=1)
