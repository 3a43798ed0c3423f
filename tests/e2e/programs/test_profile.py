"""A trace of the torch profiler: of one trial, of the best one, of a marked block, of a script."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from tests.e2e.study_folder import StudyFolder
from tuner.errors import EXIT_BUDGET_REACHED
from tuner.monitoring.dashboard_process import DATABASE_VARIABLE, STUDY_VARIABLE

pytestmark = pytest.mark.programs

TRAIN = """
import torch

def train(trial):
    for step in range(1, 7):
        with torch.profiler.record_function(f"mark-{step}"):
            torch.ones(8, 8) @ torch.ones(8, 8)
        trial.report(trial.params["x"], step)
    return trial.params["x"]
"""
BLOCKS = """
import torch

def train(trial):
    torch.ones(8) + 1
    for block in range(2):
        with trial.profile(), torch.profiler.record_function(f"mark-{block}"):
            torch.ones(8, 8) @ torch.ones(8, 8)
    trial.report(1.0, 1)
    return 1.0
"""
SCRIPT = """
import torch
import tuner

trial = tuner.current({"x": 0.5})
for step in range(1, 7):
    with torch.profiler.record_function(f"mark-{step}"):
        torch.ones(8, 8) @ torch.ones(8, 8)
    trial.report(trial.params["x"], step)
"""


def traces(folder: StudyFolder) -> dict[int, Path]:
    """By trial; each has one."""
    found = (folder.path / "tuner-files/small").glob("trial-*/*profile-*")
    return {int(path.parent.name.partition("-")[2]): path for path in found}


def events(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt") as file:
        found: list[dict[str, Any]] = json.load(file)["traceEvents"]
    return found


def marks(path: Path) -> list[str]:
    names = {each["name"] for each in events(path) if each.get("ph") == "X"}
    return sorted(name for name in names if str(name).startswith("mark-"))


def test_one_trial_over_its_steps(study_folder: StudyFolder) -> None:
    study_folder.write("forecast.py", TRAIN)
    profile = {"trial": 1, "steps": [3, 4]}
    study_folder.study(
        trial={"function": "forecast:train", "profile": profile},
        budget={"trials": 2},
        pruner="none",
    )
    ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    found = traces(study_folder)
    assert set(found) == {1}
    assert found[1].name == "profile-1.json.gz"
    assert marks(found[1]) == ["mark-3", "mark-4"]
    assert "aten::mm" in {each.get("name") for each in events(found[1])}


def test_trace_of_the_best_trial_is_kept(study_folder: StudyFolder) -> None:
    study_folder.write("forecast.py", TRAIN)
    profile = {"trial": "best", "steps": [1, 2]}
    study_folder.study(
        trial={"function": "forecast:train", "profile": profile}, devices="cpu:1", pruner="none"
    )
    for n_trials in (3, 6):
        ended = study_folder.tune("--trials", str(n_trials))
        assert ended.code == EXIT_BUDGET_REACHED, ended.text
        values = dict(
            study_folder.rows("select number, value from trials join trial_values using (trial_id)")
        )
        best = min(values, key=values.__getitem__)
        found = traces(study_folder)
        assert set(found) == {best}
        assert marks(found[best]) == ["mark-1", "mark-2"]


def test_marked_block(study_folder: StudyFolder) -> None:
    study_folder.write("forecast.py", BLOCKS)
    study_folder.study(
        trial={"function": "forecast:train", "profile": {"trial": 1}}, budget={"trials": 2}
    )
    assert study_folder.tune().code == EXIT_BUDGET_REACHED
    found = traces(study_folder)
    assert set(found) == {1}
    assert marks(found[1]) == ["mark-0"]


#: By day the trials of `test_marked_block` that are not named record nothing.
@pytest.mark.nightly
@pytest.mark.parametrize("program", ["forecast:train", "script"])
def test_nothing_is_recorded_where_it_is_off(study_folder: StudyFolder, program: str) -> None:
    study_folder.write("forecast.py", BLOCKS)
    study_folder.write("train.py", SCRIPT)
    is_script = program == "script"
    study_folder.study(
        trial={"command": ["python", "train.py"]} if is_script else {"function": program},
        budget={"trials": 1},
    )
    assert study_folder.tune().code == EXIT_BUDGET_REACHED
    assert traces(study_folder) == {}


def test_trial_that_ends_early_has_what_there_is_and_its_page_shows_it(
    study_folder: StudyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    study_folder.write("forecast.py", TRAIN)
    profile = {"trial": 0, "steps": [5, 100]}
    study_folder.study(
        trial={"function": "forecast:train", "profile": profile},
        budget={"trials": 2},
        pruner="none",
    )
    assert study_folder.tune().code == EXIT_BUDGET_REACHED
    assert marks(traces(study_folder)[0]) == ["mark-5", "mark-6"]
    monkeypatch.setenv(DATABASE_VARIABLE, f"sqlite:///{study_folder.path}/small.db")
    monkeypatch.delenv(STUDY_VARIABLE, raising=False)
    script = "from tuner.app.views import trials, shell\nshell.sidebar()\ntrials.page()"
    for number, expected in ((0, ["Download the trace"]), (1, [])):
        page = AppTest.from_string(script, default_timeout=30)
        page.query_params["trial"] = str(number)
        page.run()
        assert [each.message for each in page.exception] == []
        buttons = [each.proto.label for each in page.get("download_button")]
        assert [label for label in buttons if "trace" in label] == expected
        shown = [frame.value for frame in page.dataframe if "operation" in frame.value.columns]
        assert len(shown) == len(expected)
        if shown:
            calls = dict(zip(shown[0]["operation"], shown[0]["calls"], strict=True))
            assert calls["aten::mm"] == 2


def test_script_that_asks_for_its_trial(study_folder: StudyFolder) -> None:
    study_folder.write("train.py", SCRIPT)
    # From the start: the process that minds the script must not record itself.
    profile = {"trial": 0, "steps": [1, 3]}
    study_folder.study(
        trial={"command": ["python", "train.py"], "profile": profile}, budget={"trials": 1}
    )
    ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert marks(traces(study_folder)[0]) == ["mark-1", "mark-2", "mark-3"]
