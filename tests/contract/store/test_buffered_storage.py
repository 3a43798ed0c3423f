"""Optuna's own storage suite on our storage, and that what it holds is what the database holds."""

from __future__ import annotations

from collections.abc import Iterator

import optuna
import pytest
from optuna.storages import BaseStorage
from optuna.testing.pytest_storages import StorageTestCase

from tuner.store.database import open_database


class TestBufferedStorage(StorageTestCase):
    @pytest.fixture
    def storage(self, url: str) -> Iterator[BaseStorage]:
        database = open_database(url)
        yield database.storage
        database.close()


def test_flush_after_a_study_leaves_the_same_trials_in_the_database(url: str) -> None:
    database = open_database(url)
    study = optuna.create_study(
        storage=database.storage,
        study_name="s",
        sampler=optuna.samplers.RandomSampler(0),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=2),
    )
    study.enqueue_trial({"x": 0.5, "kind": "a"})

    def objective(trial: optuna.Trial) -> float:
        x = trial.suggest_float("x", 0, 1)
        trial.suggest_categorical("kind", ["a", "b", None])
        trial.set_user_attr("note", {"of": trial.number})
        for step in range(3):
            trial.report(float("nan") if (trial.number, step) == (5, 2) else x + step, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        if trial.number == 7:
            raise ValueError
        return float("inf") if trial.number == 3 else x

    study.optimize(objective, n_trials=12, catch=ValueError)
    in_memory = study.get_trials()
    database.storage.flush()
    reread = optuna.load_study(study_name="s", storage=url)

    # Optuna's columns for instants hold whole seconds on MySQL.
    cut = {"microsecond": 0} if url.startswith("mysql") else {}

    def shown(trial: optuna.trial.FrozenTrial) -> object:
        assert trial.datetime_start is not None
        assert trial.datetime_complete is not None
        return (
            trial.number,
            trial.state,
            trial.values,
            trial.params,
            trial.distributions,
            trial.user_attrs,
            trial.system_attrs,
            repr(trial.intermediate_values),
            trial.datetime_start.replace(**cut),
            trial.datetime_complete.replace(**cut),
        )

    assert [shown(t) for t in reread.get_trials()] == [shown(t) for t in in_memory]
    assert {t.state.name for t in in_memory} == {"COMPLETE", "PRUNED", "FAIL"}
    database.close()


def test_number_of_a_trial_after_another_program_added_some_stays_unique(url: str) -> None:
    database = open_database(url)
    study = optuna.create_study(storage=database.storage, study_name="s")
    study.ask()
    other = optuna.load_study(study_name="s", storage=url)
    other.enqueue_trial({"x": 1.0})
    assert [study.ask().number for _ in range(2)] == [2, 1]
    assert [t.number for t in study.get_trials()] == [0, 1, 2]
    database.close()


def test_refresh_after_another_program_enqueued_a_trial_hands_it_out(url: str) -> None:
    database = open_database(url)
    study = optuna.create_study(storage=database.storage, study_name="s")
    study.ask()
    other = optuna.load_study(study_name="s", storage=url)
    other.enqueue_trial({"x": 0.25})
    database.storage.refresh(study._study_id)
    trial = study.ask({"x": optuna.distributions.FloatDistribution(0, 1)})
    assert (trial.number, trial.params) == (1, {"x": 0.25})
    assert other.get_trials()[1].state == optuna.trial.TrialState.RUNNING
    database.close()
