"""Configurations that are to be tried first, on each kind of database."""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest
import yaml
from optuna.trial import TrialState

from tests.integration.stored_studies.seeded import (
    SPACE,
    a_trial,
    add_first_study,
    add_study,
    load,
    n_rows,
    optuna_storage,
    place,
)
from tuner.actions.config_input import Given
from tuner.actions.enqueue import Enqueued, enqueue
from tuner.errors import ConfigError, StoreError, StudyMismatch
from tuner.queries.locate import Place, find_place
from tuner.search_spaces import SearchSpace


def put(where: Place, *configurations: dict[str, object], skip_existing: bool = False) -> Enqueued:
    given = [Given(place="--params", params=each) for each in configurations]
    return enqueue(where, given, skip_existing=skip_existing, asked_by="ann@here")


def test_configurations_wait_as_optuna_has_it(url: str) -> None:
    add_first_study(url)
    done = put(place(url), {"lr": 0.02, "epochs": 20}, {"optimizer": "sgd", "momentum": 0.5})
    assert (done.study, done.trial_numbers, done.n_skipped) == ("first", (8, 9), 0)
    waiting = load(url, "first")[1][8:]
    assert [trial.state for trial in waiting] == [TrialState.WAITING] * 2
    assert [trial.system_attrs for trial in waiting] == [
        {"fixed_params": {"lr": 0.02}},
        {"fixed_params": {"optimizer": "sgd", "momentum": 0.5}},
    ]
    assert all(trial.datetime_start is None for trial in waiting)


def test_optuna_takes_them_first(url: str) -> None:
    add_study(url, "first", [])
    put(place(url), {"lr": 0.02})
    with optuna_storage(url) as storage:
        trial = optuna.load_study(study_name="first", storage=storage).ask()
        params = SPACE.suggest(trial)
    assert (trial.number, params["lr"]) == (0, 0.02)


def test_one_mistake_keeps_all_out(url: str) -> None:
    add_first_study(url)
    before = n_rows(url)
    with pytest.raises(ConfigError) as caught:
        put(place(url), {"lr": 0.02}, {"lr": 7, "optimiser": "sgd"})
    assert str(caught.value).splitlines() == [
        "--params: lr is 7, but goes from 0.0001 to 0.1.",
        "--params: optimiser is no parameter of this study. Did you mean 'optimizer'?",
    ]
    assert n_rows(url) == before


def test_what_was_tried_or_waits_is_left_out(url: str) -> None:
    add_first_study(url)
    tried = {"lr": 0.001, "optimizer": "adamw"}
    done = put(place(url), tried, {"lr": 0.05}, {"lr": 0.07}, {"lr": 0.07}, skip_existing=True)
    assert (done.trial_numbers, done.n_skipped) == ((8,), 3)
    assert put(place(url), tried).trial_numbers == (9,)


def test_objectives_own_space_is_checked_where_trials_have_shown_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    add_study(url, "plain", [a_trial({"lr": 0.01}, 0.5)], space=None)
    done = put(place(url), {"lr": 0.02, "depth": 3})
    assert load(url, "plain")[1][1].system_attrs == {"fixed_params": {"lr": 0.02, "depth": 3}}
    assert done.trial_numbers == (1,)
    with pytest.raises(ConfigError, match=r"lr is 7, but goes from 0\.0001 to 0\.1"):
        put(place(url), {"lr": 7})


# -- of a study file -------------------------------------------------------------------------


@pytest.fixture
def study_file(tmp_path: Path) -> Path:
    return write(tmp_path, SPACE)


def write(folder: Path, space: SearchSpace) -> Path:
    path = folder / "study.yaml"
    content = {
        "study": "small",
        "objectives": {"accuracy": "maximize"},
        "trial": {"function": "m:f"},
        "search_space": space.to_mapping(),
    }
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def test_study_that_was_never_run_is_made(study_file: Path) -> None:
    where = find_place(str(study_file), None, {}, is_new=True)
    assert put(where, {"lr": 0.02}).trial_numbers == (0,)
    assert put(where, {"lr": 0.03}).trial_numbers == (1,)
    attributes, trials = load(where.url, "small")
    assert set(attributes) == {"tuner:space", "tuner:objectives", "tuner:identity"}
    assert [trial.state for trial in trials] == [TrialState.WAITING] * 2


def test_mistake_makes_no_study(study_file: Path) -> None:
    where = find_place(str(study_file), None, {}, is_new=True)
    with pytest.raises(ConfigError):
        put(where, {"lr": 7})
    assert not (study_file.parent / "small.db").exists()


def test_changed_file_is_refused(study_file: Path) -> None:
    where = find_place(str(study_file), None, {}, is_new=True)
    put(where, {"lr": 0.02})
    write(study_file.parent, SearchSpace(parameters=SPACE.parameters[:1]))
    changed = find_place(str(study_file), None, {}, is_new=True)
    with pytest.raises(StudyMismatch, match="optimizer is gone"):
        put(changed, {"lr": 0.02})


def test_unknown_study_of_a_database_is_not_made(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    add_study(url, "first", [])
    with pytest.raises(StoreError, match="Did you mean 'first'"):
        put(place(url, "frist"), {"lr": 0.02})
