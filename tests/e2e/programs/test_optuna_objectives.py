"""Objectives that were written for Optuna, with what they use of `trial` and `trial.study`."""

from __future__ import annotations

import pytest

from tests.e2e.study_folder import StudyFolder
from tuner.errors import EXIT_BUDGET_REACHED

pytestmark = pytest.mark.programs

# Kept as an artifact after each epoch; the first attempt is lost in the middle.
RESUMED = """
import json, os, tempfile

import optuna
from optuna.artifacts import FileSystemArtifactStore, download_artifact, upload_artifact
from optuna.storages import RetryHeartbeatStaleTrialCallback

os.makedirs("kept", exist_ok=True)
store = FileSystemArtifactStore(base_path="kept")


def objective(trial):
    x = trial.suggest_float("x", 0.0, 1.0)
    first = 0
    for number in reversed(RetryHeartbeatStaleTrialCallback.retry_history(trial)):
        found = trial.study.trials[number].user_attrs.get("state")
        if found is not None:
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "state.json")
                download_artifact(artifact_store=store, artifact_id=found, file_path=path)
                first = json.load(open(path))["epoch"] + 1
            break
    print("begins at", first)
    for epoch in range(first, 6):
        if epoch == 3 and first == 0:
            os._exit(9)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "state.json")
            json.dump({"epoch": epoch}, open(path, "w"))
            artifact = upload_artifact(artifact_store=store, file_path=path, study_or_trial=trial)
        trial.set_user_attr("state", artifact)
        trial.report(x + epoch, epoch)
        if trial.should_prune():
            raise optuna.TrialPruned()
    return x + first
"""

FORMS = """
import functools


class Shifted:
    def __init__(self, by):
        self.by = by

    def __call__(self, trial):
        return trial.suggest_float("x", 0.0, 1.0) + self.by


def shifted(by, trial):
    return trial.suggest_float("x", 0.0, 1.0) + by


instance = Shifted(10)
bound = functools.partial(shifted, 10)
short = lambda trial: trial.suggest_float("x", 0.0, 1.0) + 10
"""

# As frameworks do that start their ranks by themselves.
SPAWNS = """
import multiprocessing


def train(trial, x):
    for step in range(3):
        trial.report(x + step, step)
    trial.set_user_attr("seen", [trial.number, trial.params["x"] == x, trial.study.study_name])


def objective(trial):
    x = trial.suggest_float("x", 0.0, 1.0)
    child = multiprocessing.get_context("spawn").Process(target=train, args=(trial, x))
    child.start()
    child.join()
    assert child.exitcode == 0
    return x
"""

STARTS = """
import multiprocessing

from torch.utils.data import DataLoader

{prelude}


def objective(trial):
    x = trial.suggest_float("x", 0.0, 1.0)
    trial.set_user_attr("method", multiprocessing.get_start_method())
    if multiprocessing.get_start_method() == "fork":
        # No other way can pass a lambda to the processes of a loader.
        loader = DataLoader([1, 2, 3], num_workers=2, collate_fn=lambda rows: sum(rows))
        assert list(loader) == [1, 2, 3]
    return x
"""

STOPS = """
def objective(trial):
    x = trial.suggest_float("x", 0.0, 1.0)
    trial.set_user_attr("seen", [d.name for d in trial.study.directions])
    if trial.number == 2:
        trial.study.stop()
    return x, -x
"""

RANGES = """
def objective(trial):
    lr = trial.suggest_float("lr", 1e-5, 1e-1, log=True)
    width = trial.suggest_int("width", 4, 64)
    return lr + width + trial.suggest_float("dropout", 0.0, 0.5)
"""


def test_a_restarted_objective_finds_its_artifact(study_folder: StudyFolder) -> None:
    study_folder.write("resumed.py", RESUMED)
    study_folder.study(
        trial={"function": "resumed:objective", "retries": 1},
        search_space=None,
        budget={"trials": 1},
        pruner="none",
    )
    ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert [each.outcome for each in study_folder.attempts()] == ["failed", "completed"]
    logs = study_folder.tuner("logs", "0", "--attempt", "2")
    assert "begins at 3" in logs.out
    keys = "select count(*) from trial_system_attributes where key like 'artifacts:%'"
    assert study_folder.rows(keys) == [(6,)]


@pytest.mark.parametrize("name", ["instance", "bound", "short"])
def test_any_callable_is_an_objective(study_folder: StudyFolder, name: str) -> None:
    study_folder.write("forms.py", FORMS)
    study_folder.study(trial={"function": f"forms:{name}"}, search_space=None, budget={"trials": 2})
    ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    values = study_folder.rows("select value from trial_values")
    assert len(values) == 2
    assert all(10 <= value <= 11 for (value,) in values)


def test_a_trial_can_be_passed_to_a_process_of_its_own(study_folder: StudyFolder) -> None:
    study_folder.write("spawns.py", SPAWNS)
    study_folder.study(
        trial={"function": "spawns:objective"},
        search_space=None,
        pruner="none",
        budget={"trials": 1},
        devices="cpu:1",
    )
    ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    curve = "select step from trial_intermediate_values order by step"
    assert study_folder.rows(curve) == [(0,), (1,), (2,)]
    seen = study_folder.rows("select value_json from trial_user_attributes where key = 'seen'")
    assert seen == [('[0, true, "small"]',)]


@pytest.mark.parametrize("prelude", ["", "multiprocessing.set_start_method('spawn')"])
def test_processes_of_a_trial_are_started_as_without_the_tuner(
    study_folder: StudyFolder, prelude: str
) -> None:
    study_folder.write("starts.py", STARTS.format(prelude=prelude))
    study_folder.study(
        trial={"function": "starts:objective"},
        search_space=None,
        budget={"trials": 1},
        devices="cpu:1",
    )
    ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    alone = "import multiprocessing as m, starts; print(m.get_start_method())"
    expected = study_folder.python("-c", alone).out.strip()
    seen = study_folder.rows("select value_json from trial_user_attributes where key = 'method'")
    assert seen == [(f'"{expected}"',)]


def test_an_objective_stops_its_study(study_folder: StudyFolder) -> None:
    study_folder.write("stops.py", STOPS)
    study_folder.study(
        trial={"function": "stops:objective"},
        search_space=None,
        objectives={"gain": "maximize", "loss": "minimize"},
        budget={"trials": 500},
    )
    ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert "trial 2 called study.stop()" in ended.out
    assert 3 <= len(study_folder.states()) < 50
    assert set(study_folder.states()) <= {"COMPLETE", "WAITING"}
    seen = study_folder.rows("select value_json from trial_user_attributes where key = 'seen'")
    assert set(seen) == {('["MAXIMIZE", "MINIMIZE"]',)}


def test_a_range_in_code_that_differs_is_said_once(study_folder: StudyFolder) -> None:
    study_folder.write("ranges.py", RANGES)
    study_folder.study(
        trial={"function": "ranges:objective"},
        search_space={
            "lr": {"type": "float", "low": 1e-4, "high": 1e-2, "log": True},
            "width": {"type": "int", "low": 4, "high": 64},
            "dropout": 0.25,
        },
    )
    ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    said = " ".join(ended.out.split())
    in_code = "{type: float, low: 1.0e-05, high: 0.1, log: true}"
    assert said.count("Parameter lr: the study file has") == 1
    in_file = "low: 0.0001, high: 0.01, log: true}"
    # Of two trials that start together, either is the first to ask.
    assert any(f"{in_file}, the code of trial {n} has {in_code}" in said for n in (0, 1))
    assert "Parameter dropout: the study file has 0.25, the code" in said
    assert "Parameter width" not in said
