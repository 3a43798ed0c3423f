"""`curve_gp` is a sampler of Optuna's: it passes the test cases that Optuna has for its own."""

from __future__ import annotations

from collections.abc import Callable

import optuna
import pytest
from optuna.samplers import BaseSampler
from optuna.testing.pytest_samplers import (
    BasicSamplerTestCase,
    MultiObjectiveSamplerTestCase,
    RelativeSamplerTestCase,
)

from tuner.search.samplers.curve_gp.sampler import CurveGPSampler

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")


@pytest.mark.slow
class TestCurveGP(BasicSamplerTestCase, RelativeSamplerTestCase, MultiObjectiveSamplerTestCase):
    @pytest.fixture
    def sampler(self) -> Callable[[], BaseSampler]:
        return lambda: CurveGPSampler(seed=1, n_startup_trials=1, random_share=0.0)


@pytest.mark.slow
@pytest.mark.parametrize("n_objectives", [1, 2, 3])
def test_constraints_are_kept_as_by_the_samplers_of_optuna(n_objectives: int) -> None:
    """Half of the space is feasible, and the objectives are best in the other half."""
    study = optuna.create_study(
        directions=["minimize"] * n_objectives, sampler=CurveGPSampler(seed=1, n_startup_trials=8)
    )

    def objective(trial: optuna.Trial) -> list[float]:
        x, y = trial.suggest_float("x", 0.0, 1.0), trial.suggest_float("y", 0.0, 1.0)
        trial.set_constraint("left", x - 0.5)
        trial.set_constraint("never", -1.0)
        return [(y - k / 2) ** 2 - x for k in range(n_objectives)]

    study.optimize(objective, n_trials=20)
    later = study.trials[10:]
    kept = [each for each in later if each.constraints["left"] <= 0]
    assert len(kept) >= 6, "a third is drawn at random"
    assert max(each.params["x"] for each in kept) > 0.4, "the best lies at the bound"
    assert all(each.constraints["left"] <= 0 for each in study.best_trials)
