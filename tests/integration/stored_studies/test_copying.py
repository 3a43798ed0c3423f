"""A study that begins with the trials of an earlier one, on each kind of database."""

from __future__ import annotations

import math
from pathlib import Path

import optuna
import pytest
import yaml
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.trial import TrialState

from tests.integration.stored_studies.seeded import (
    SPACE,
    a_trial,
    add_attempt,
    add_dispatcher,
    add_first_study,
    add_study,
    dump,
    load,
    n_rows,
    optuna_storage,
    place,
)
from tuner.actions.transfer.copy import COPIED_ATTR, Copied, Keep, copy_study
from tuner.actions.transfer.copy_plan import CopyPlan, plan_copy
from tuner.errors import ConfigError, StoreError
from tuner.search_spaces import SearchSpace, from_json, parse_space

NARROW = parse_space(
    {
        "lr": {"type": "float", "low": 0.005, "high": 0.05},
        "optimizer": {"type": "categorical", "choices": ["adamw", "sgd"]},
        "momentum": {"type": "float", "low": 0.0, "high": 0.99, "when": {"optimizer": "sgd"}},
        "epochs": 20,
        "new": "a constant",
    }
)


def copy(url: str, space: SearchSpace | Keep = Keep.SPACE, name: str = "second") -> Copied:
    return copy_study(place(url, "first"), place(url, name), space, None)


def test_same_space_takes_all_that_has_a_result(url: str) -> None:
    add_first_study(url)
    before = dump(url, "first")
    done = copy(url)
    assert (done.origin, done.study, done.n_copied) == ("first", "second", 5)
    assert (done.left_out, done.n_not_ended) == ({}, 3)
    attributes, trials = load(url, "second")
    old = load(url, "first")[1]
    assert [trial.number for trial in trials] == list(range(5))
    for new, same in zip(trials, [old[i] for i in (0, 1, 2, 6, 7)], strict=True):
        assert (new.params, new.distributions) == (same.params, same.distributions)
        assert (new.state, new.values, new.user_attrs) == (same.state, same.values, same.user_attrs)
        assert str(new.intermediate_values) == str(same.intermediate_values)
        assert (new.datetime_start, new.constraints) == (same.datetime_start, same.constraints)
    assert attributes.pop(COPIED_ATTR) == {"study": "first", "trials": 5}
    assert attributes == load(url, "first")[0]
    assert dump(url, "first") == before


def test_notes_of_samplers_stay_behind(url: str) -> None:
    add_first_study(url)
    copy(url)
    assert load(url, "second")[1][4].system_attrs == {"completed_rung_0": 0.5}


def test_only_what_fits_a_changed_space_is_taken(url: str) -> None:
    add_first_study(url)
    done = copy(url, NARROW)
    assert done.n_copied == 1
    assert done.left_out == {"lr is outside of its new range": 4}
    attributes, (trial,) = load(url, "second")
    assert trial.params == {"lr": 0.01, "optimizer": "sgd", "momentum": 0.9}
    assert trial.distributions["lr"] == FloatDistribution(0.005, 0.05)
    assert trial.distributions["optimizer"] == CategoricalDistribution(["adamw", "sgd"])
    assert from_json(attributes["tuner:space"]) == NARROW


def test_samplers_learn_from_the_copies(url: str) -> None:
    add_study(url, "first", [a_trial({"lr": 0.01, "optimizer": "adamw"}, 0.5) for _ in range(12)])
    copy(url)
    with optuna_storage(url) as storage:
        sampler = optuna.samplers.TPESampler(seed=0)
        study = optuna.load_study(study_name="second", storage=storage, sampler=sampler)
        params = SPACE.suggest(study.ask())
    assert params["optimizer"] == "adamw"
    assert math.isclose(float(str(params["lr"])), 0.01, rel_tol=5)


def test_study_of_optuna_alone_keeps_its_parameters(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/plain.db"
    add_study(url, "first", [a_trial({"lr": 0.01}, 0.5)], space=None)
    assert copy(url).n_copied == 1
    attributes, (trial,) = load(url, "second")
    assert (trial.params, set(attributes)) == ({"lr": 0.01}, {COPIED_ATTR})


def test_copy_of_a_copy_counts_anew(url: str) -> None:
    add_first_study(url)
    copy(url)
    copy_study(place(url, "second"), place(url, "third"), Keep.SPACE, None)
    assert load(url, "third")[0][COPIED_ATTR] == {"study": "second", "trials": 5}


def test_no_attempt_is_copied(url: str) -> None:
    add_study(url, "first", [a_trial({"lr": 0.01}, 0.5)])
    add_attempt(url, add_dispatcher(url, "first", is_ended=True), 0)
    before = n_rows(url)["tuner_attempts"]
    copy(url)
    assert n_rows(url)["tuner_attempts"] == before


def test_name_that_is_taken_is_refused(url: str) -> None:
    add_first_study(url)
    with pytest.raises(StoreError, match=r"has a study 'first' already. Give --to another name"):
        copy(url, name="first")


def test_space_that_no_trial_fits_makes_no_study(url: str) -> None:
    add_first_study(url)
    before = n_rows(url)
    with pytest.raises(StoreError) as caught:
        copy(url, parse_space({"lr": {"type": "float", "low": 1, "high": 2}}))
    assert str(caught.value).splitlines()[:2] == [
        "No trial was copied, and no study was made. None fits the new space:",
        "  5: lr is outside of its new range",
    ]
    assert n_rows(url) == before


def test_study_without_results_is_refused(url: str) -> None:
    add_study(url, "first", [a_trial({}, state=TrialState.FAIL)])
    with pytest.raises(StoreError, match=r"The study has no trial that has completed"):
        copy(url)


# -- what is to be done ----------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write("study.yaml", SPACE)
    return tmp_path


def write(file: str, space: SearchSpace, **keys: object) -> None:
    content = {
        "study": "first",
        "objectives": {"accuracy": "maximize"},
        "trial": {"function": "m:f"},
        "search_space": space.to_mapping(),
        **keys,
    }
    Path(file).write_text(yaml.safe_dump(content, sort_keys=False))


def plan(
    source: str = "study.yaml", *, space: str | None = None, to_storage: str | None = None
) -> CopyPlan:
    return plan_copy(source, None, "second", Path(space) if space else None, to_storage, {})


def test_study_files_start_will_find_the_copy(folder: Path) -> None:
    found = plan()
    assert found.origin.url == f"sqlite:///{folder}/first.db"
    assert found.target.url == f"sqlite:///{folder}/second.db"
    assert (found.target.study, found.space) == ("second", SPACE)
    assert plan(to_storage="sqlite:///all.db").target.url == f"sqlite:///{folder}/all.db"


def test_space_comes_from_a_study_file_or_is_alone(folder: Path) -> None:
    write("other.yaml", NARROW, storage="sqlite:///other.db")
    found = plan(space="other.yaml")
    assert (found.space, found.target.url) == (NARROW, f"sqlite:///{folder}/other.db")
    Path("space.yaml").write_text(yaml.safe_dump(NARROW.to_mapping(), sort_keys=False))
    assert plan(space="space.yaml").space == NARROW


def test_database_keeps_its_space(folder: Path) -> None:
    found = plan("sqlite:///first.db")
    assert (found.space, found.config) == (Keep.SPACE, None)
    assert found.target.url == found.origin.url


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "space.yaml: cannot be read: No such file"),
        ("lr: {type: flaot}", "space.yaml: lr.type is 'flaot', but must be float"),
        ("a: [", "space.yaml: line"),
    ],
    ids=["absent", "wrong", "no yaml"],
)
def test_wrong_space_is_named(folder: Path, text: str | None, message: str) -> None:
    if text is not None:
        (folder / "space.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        plan(space="space.yaml")


def test_other_objectives_are_refused(folder: Path) -> None:
    add_study(f"sqlite:///{folder}/first.db", "first", [a_trial({"lr": 0.01}, 0.5)])
    write("other.yaml", SPACE, objectives={"accuracy": "minimize"})
    found = plan(space="other.yaml")
    with pytest.raises(StoreError, match=r"accuracy \(minimize\), but study 'first' has accuracy"):
        copy_study(found.origin, found.target, found.space, found.config)
    assert not (folder / "second.db").exists()


def test_study_of_optuna_alone_gets_the_files_names(folder: Path) -> None:
    write("study.yaml", parse_space(dict(list(SPACE.to_mapping().items())[:1])))
    add_study(f"sqlite:///{folder}/first.db", "first", [a_trial({"lr": 0.01}, 0.5)], space=None)
    found = plan()
    copy_study(found.origin, found.target, found.space, found.config)
    assert load(found.target.url, "second")[0]["tuner:objectives"] == ["accuracy"]
