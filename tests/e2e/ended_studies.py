"""A dashboard on studies that have ended, for people and tests to look at."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from random import Random

import optuna
import pytest
from optuna.trial import TrialState, create_trial

from tests.e2e.browser import dashboard
from tests.e2e.study_folder import StudyFolder
from tests.integration.app.devices.device_week import add_week
from tests.integration.app.population_study import add_population
from tests.integration.stored_studies import seeded

SPACE: dict[str, optuna.distributions.BaseDistribution] = {
    "lr": optuna.distributions.FloatDistribution(1e-5, 1e-1, log=True),
    "width": optuna.distributions.IntDistribution(16, 512, log=True),
    "dropout": optuna.distributions.FloatDistribution(0.0, 0.5),
}
N_TRIALS, N_STEPS = 240, 27


def a_trial(random: Random, number: int) -> optuna.trial.FrozenTrial:
    """Accuracy that grows, towards what the learning rate and the width allow."""
    params = {
        "lr": 10 ** random.uniform(-5, -1),
        "width": round(2 ** random.uniform(4, 9)),
        "dropout": random.uniform(0.0, 0.5),
    }
    away = (math.log10(params["lr"]) + 3) ** 2 / 8 + (params["dropout"] - 0.2) ** 2
    end = 0.98 - 0.35 * away - 0.2 / math.log2(params["width"]) + random.gauss(0, 0.004)
    curve = {
        step: end * (1 - math.exp(-step / 5)) + random.gauss(0, 0.004)
        for step in range(1, N_STEPS + 1)
    }
    if number % 23 == 22:
        return create_trial(state=TrialState.FAIL, params=params, distributions=SPACE)
    last = next((rung for rung in (1, 3, 9) if end < 0.62 + 0.08 * math.log(rung, 3)), N_STEPS)
    seen = {step: value for step, value in curve.items() if step <= last}
    return create_trial(
        state=TrialState.COMPLETE if last == N_STEPS else TrialState.PRUNED,
        value=seen[last],
        params=params,
        distributions=SPACE,
        intermediate_values=seen,
    )


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a dashboard on studies that nobody works on."""
    study_folder = StudyFolder(path=tmp_path_factory.mktemp("user"))
    url = f"sqlite:///{study_folder.path}/small.db"
    add_week(url, datetime.now(UTC), days=0.5, trial_s=1_800)
    seeded.add_first_study(url)
    add_population(url)
    random = Random(0)
    trials = [a_trial(random, number) for number in range(N_TRIALS)]
    seeded.add_study(url, "digits", trials, directions=("maximize",), objectives=("accuracy",))
    seeded.add_dispatcher(
        url,
        "digits",
        is_ended=True,
        study_file="pruner: {name: asha, min_resource: 1, reduction_factor: 3}\n"
        "budget: {trials: 300}\n",
    )
    study_folder.write("token", "correct horse battery\n")
    _, where = dashboard(study_folder, "small.db", "--token-file", "token")
    yield where
    study_folder.end_all()
