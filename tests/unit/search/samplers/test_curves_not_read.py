"""Curves are read from the database on a first look, so a suggestion looks at few."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.samplers import TPESampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from tuner.search.samplers.bounded import bounded
from tuner.search.samplers.curve_gp.shortlists import Least, is_pruned_behind, rank
from tuner.search.samplers.history_views import TPE_LIMIT
from tuner.store.optuna_tables.curves.lazy_curve import Batch, Curve, compact

X = FloatDistribution(0.0, 1.0)


class Fetch:
    """Notes the trials whose curves were fetched."""

    def __init__(self) -> None:
        self.fetched: list[int] = []

    def __call__(self, trial_ids: Collection[int]) -> Mapping[int, Curve]:
        self.fetched += trial_ids
        return {each: Curve.of({1: each / 1000}) for each in trial_ids}


def pruned(curve: Mapping[int, float]) -> FrozenTrial:
    trial = create_trial(state=TrialState.PRUNED, params={"x": 0.5}, distributions={"x": X})
    trial.intermediate_values = compact(curve)
    return trial


def completed(value: float) -> FrozenTrial:
    return create_trial(value=value, params={"x": 0.5}, distributions={"x": X})


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_a_pruned_trial_behind_enough_completed_ones_is_not_looked_at(direction: str) -> None:
    fetch = Fetch()
    curves = Batch(range(4), fetch).curves()
    best = Least(2, rank(optuna.create_study(direction=direction)), is_behind=is_pruned_behind)
    best.add(pruned(curves[0]))
    assert fetch.fetched == [0, 1, 2, 3]
    unread = Batch(range(4), fetch).curves()
    for value in (float("inf"), 0.5):
        best.add(completed(value))
    best.add(pruned(unread[1]))
    assert [trial.state for trial in best] == [TrialState.COMPLETE] * 2
    assert fetch.fetched == [0, 1, 2, 3]


def test_a_suggestion_reads_the_curves_of_the_pruned_trials_that_it_is_shown() -> None:
    fetch = Fetch()
    curves = Batch(range(2000), fetch).curves()
    study = optuna.create_study(sampler=bounded(TPESampler(seed=0), seed=0))
    study.add_trials(completed(value / 100) for value in range(100))
    study.add_trials(map(pruned, curves.values()))
    assert fetch.fetched == []
    study.ask({"x": X})
    assert 0 < len(fetch.fetched) < TPE_LIMIT
