"""Pruners, schedulers and samplers that another package registers by entry points."""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest

from tests import toy_plugin
from tests.databases import new_database
from tuner.config import Direction, PrunerConfig, SamplerConfig
from tuner.domain.messages import Action
from tuner.errors import ConfigError
from tuner.search.pruners.registry import PRUNERS, build_pruner
from tuner.search.samplers.registry import build_sampler
from tuner.search.scheduler import CONTINUE
from tuner.search.study import StudySearch
from tuner.store.connection.database import open_database


@pytest.fixture(autouse=True)
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy_plugin.install(tmp_path / "site")
    monkeypatch.syspath_prepend(tmp_path / "site")


def pruner(name: str, n_objectives: int = 1, **arguments: object) -> optuna.pruners.BasePruner:
    config = PrunerConfig.model_validate({"name": name, **arguments})
    return build_pruner(config, n_objectives, file="study.yaml")


def mistake(name: str, **arguments: object) -> str:
    with pytest.raises(ConfigError) as caught:
        pruner(name, **arguments)
    return str(caught.value)


def test_registered_pruner_is_made_with_its_arguments() -> None:
    assert vars(pruner("toy", first_step=3)) == {"first_step": 3}
    wrapped = pruner("patient", patience=2, wrapped_pruner={"name": "toy", "first_step": 2})
    assert isinstance(wrapped, optuna.pruners.PatientPruner)


def test_wrong_argument_of_a_registered_pruner_names_those_that_exist() -> None:
    assert "The arguments of toy are first_step" in mistake("toy", frist_step=3)


def test_wrong_name_lists_registered_names_too() -> None:
    told = mistake("toyy")
    assert "Did you mean 'toy'?" in told
    for name in ("toy", "toy_scheduler", "median", "asha"):
        assert f" {name}," in told


def test_registered_name_does_not_replace_a_built_in_one() -> None:
    assert isinstance(pruner("median"), optuna.pruners.MedianPruner)
    assert PRUNERS.names.count("median") == 1


def test_class_that_cannot_be_imported_is_refused() -> None:
    told = mistake("toy_absent")
    assert "toy_plugin_absent:OddPruner" in told
    assert "No module named 'toy_plugin_absent'" in told


def test_class_of_another_kind_is_refused() -> None:
    assert "is not a subclass of BasePruner" in mistake("toy_sampler")


def test_pruner_with_its_own_scheduler_takes_several_objectives() -> None:
    pruner("toy_scheduler", 2)
    with pytest.raises(ConfigError, match="compares one value"):
        pruner("toy", 2)


def test_registered_sampler_is_made() -> None:
    sampler = build_sampler(SamplerConfig.model_validate("toy_random"), None, seed=1)
    assert type(sampler).__name__ == "ToySampler"


@pytest.mark.parametrize(
    "objectives",
    [{"a": Direction.MAXIMIZE}, {"a": Direction.MAXIMIZE, "b": Direction.MINIMIZE}],
    ids=["one", "two"],
)
def test_registered_scheduler_judges_reports(
    tmp_path: Path, objectives: dict[str, Direction]
) -> None:
    database = open_database(new_database(tmp_path))
    search = StudySearch(
        database.storage,
        "s",
        objectives=objectives,
        space=None,
        sampler=optuna.samplers.RandomSampler(0),
        pruner=pruner("toy_scheduler"),
    )
    first, second = search.ask(), search.ask()
    assert first is not None
    assert second is not None
    values = dict.fromkeys(objectives, 0.5)
    assert search.report(first.trial_id, 1, values) == CONTINUE
    verdict = search.report(second.trial_id, 1, values)
    assert verdict.action is Action.PRUNE
    assert verdict.reason == "only trial 0 passes step 1"
    assert search.resume(is_last=True) is None
    assert not search.lacks_a_winner
    database.close()
