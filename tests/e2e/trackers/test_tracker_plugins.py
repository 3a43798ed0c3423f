"""Trackers of another package, by an entry point alone: what they get, and that none holds up."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests import toy_tracker
from tests.e2e.study_folder import REPOSITORY, StudyFolder, wait_until
from tuner.errors import EXIT_BAD_INPUT, EXIT_BUDGET_REACHED

pytestmark = pytest.mark.programs

TRAIN = """
def train(trial):
    for step in range(1, 6):
        trial.report(trial.params["x"] * step, step)
        if trial.should_prune():
            return
    return trial.params["x"]
"""
#: Waits at step 3 of trial 1, in its first attempt, and never ends there.
WAITS = """
import time
from pathlib import Path

def train(trial):
    state = trial.load_checkpoint()
    begin = state["step"] if state else 0
    for step in range(begin + 1, 6):
        trial.report(float(step), step)
        if step == 2:
            trial.save_checkpoint({"step": 1}, step=1)
        if trial.number == 1 and trial.attempt_number == 1 and step == 3:
            Path("waits").touch()
            time.sleep(3600)
    return 1.0
"""


#: Reports, and has no result.
NO_RESULT = """
import math
import torch

def train(trial):
    trial.report(0.5, 1)
    if trial.number == 1:
        raise torch.OutOfMemoryError("CUDA out of memory")
    return math.nan if trial.number == 2 else 0.25
"""


@pytest.fixture
def toy_folder(study_folder: StudyFolder, tmp_path: Path) -> StudyFolder:
    """A study folder of a user who has installed the toy package."""
    toy_tracker.install(tmp_path / "site")
    study_folder.env["PYTHONPATH"] = f"{REPOSITORY}:{tmp_path / 'site'}"
    study_folder.write("forecast.py", TRAIN)
    return study_folder


def test_tracker_gets_parameters_curves_and_endings(toy_folder: StudyFolder) -> None:
    pruner = {"name": "percentile", "percentile": 1.0, "n_startup_trials": 1}
    toy_folder.study(
        track={"toy": "runs.jsonl"},
        pruner=pruner,
        devices="cpu:1",
        search_space={"x": {"type": "float", "low": 0, "high": 1}, "epochs": 5},
    )
    ended = toy_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert "track" not in ended.text
    path = toy_folder.path / "runs.jsonl"
    begun = toy_tracker.calls(path, "begin")
    assert [each["trial"] for each in begun] == [0, 1, 2, 3]
    assert begun[0]["params"].keys() == {"x", "epochs"}
    assert begun[0]["tags"]["devices"] == "cpu:0"
    assert begun[0]["tags"]["study"] == "small"
    assert Path(begun[0]["tags"]["log"]).name == "attempt-1.log"
    points = [each["points"] for each in toy_tracker.calls(path, "log") if each["trial"] == 0]
    x = begun[0]["params"]["x"]
    flat = [tuple(each) for some in points for each in some]
    assert flat == [("value", step, pytest.approx(x * step)) for step in range(1, 6)]
    states = {"COMPLETE": "completed", "PRUNED": "pruned"}
    outcomes = [each["outcome"] for each in toy_tracker.calls(path, "end")]
    assert outcomes == [states[each] for each in toy_folder.states()]
    assert toy_tracker.calls(path, "end")[0]["values"] == {"value": pytest.approx(x)}
    assert len(toy_tracker.calls(path, "close")) == 1


def test_trial_out_of_memory_or_with_nan_has_failed_without_a_value(
    toy_folder: StudyFolder,
) -> None:
    """Optuna stores both as pruned, and their last report as the value."""
    toy_folder.write("forecast.py", NO_RESULT)
    toy_folder.study(track={"toy": "runs.jsonl"}, devices="cpu:1", budget={"trials": 3})
    assert toy_folder.tune().code == EXIT_BUDGET_REACHED
    assert toy_folder.states() == ["COMPLETE", "PRUNED", "PRUNED"]
    ends = toy_tracker.calls(toy_folder.path / "runs.jsonl", "end")
    assert [(each["outcome"], each["status"], each["values"]) for each in ends] == [
        ("completed", "completed", {"value": 0.25}),
        ("out_of_memory", "failed", {}),
        ("not_a_number", "failed", {}),
    ]


def test_tracker_that_is_down_is_said_once_and_written_at_the_next_start(
    toy_folder: StudyFolder,
) -> None:
    toy_folder.study(track={"toy": {"file": "runs.jsonl", "fails_at": 5}}, pruner="none")
    running = toy_folder.start()
    wait_until(lambda: "cannot be written" in running.out, "it is said")
    wait_until(lambda: running.out.count(": completed") == 4, "the trials are over")
    # Ends the wait for a tracker that is down.
    running.signal(signal.SIGINT)
    ended = running.wait()
    assert ended.out.count("the tracker is down") == 1
    assert "track.toy: 4 trials are not written completely" in ended.out
    path = toy_folder.path / "runs.jsonl"
    assert toy_tracker.calls(path, "end") == []
    toy_folder.write("repaired", "")
    again = toy_folder.tune()
    assert again.code == EXIT_BUDGET_REACHED, again.text
    assert sorted(each["trial"] for each in toy_tracker.calls(path, "end")) == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["hung", "dying"])
def test_tracker_that_hangs_or_dies_does_not_stop_a_study(
    toy_folder: StudyFolder, name: str
) -> None:
    toy_folder.study(track={name: "runs.jsonl", "toy": "others.jsonl"}, pruner="none")
    running = toy_folder.start()
    others = toy_folder.path / "others.jsonl"
    wait_until(lambda: len(toy_tracker.calls(others, "close")) == 1, "the other one is written")
    if name == "hung":
        running.signal(signal.SIGINT)
    ended = running.wait()
    assert f"track.{name}: Some trials are not written completely" in ended.out
    assert toy_folder.states() == ["COMPLETE"] * 4
    assert len(toy_tracker.calls(others, "end")) == 4


def test_killed_and_resumed_trial_is_one_run_without_a_point_twice(
    toy_folder: StudyFolder,
) -> None:
    toy_folder.write("forecast.py", WAITS)
    toy_folder.study(track={"toy": "runs.jsonl"}, devices="cpu:1", budget={"trials": 3})
    path = toy_folder.path / "runs.jsonl"

    def steps() -> list[int]:
        logged = [each for each in toy_tracker.calls(path, "log") if each["trial"] == 1]
        return [step for each in logged for _, step, _ in each["points"]]

    running = toy_folder.start()
    wait_until(lambda: steps()[-1:] == [3], "the tracker has step 3")
    progress = toy_folder.path / "tuner-files/small/trackers/toy-1.json"
    wait_until(lambda: '"1": {"value": 3}' in progress.read_text(), "that is noted")
    running.signal(signal.SIGKILL)
    running.wait()
    again = toy_folder.tune()
    assert again.code == EXIT_BUDGET_REACHED, again.text
    assert [(one.trial, one.number) for one in toy_folder.attempts()] == [
        *((0, 1), (1, 1), (1, 2), (2, 1))
    ]
    assert steps() == [1, 2, 3, 4, 5]
    assert [each["trial"] for each in toy_tracker.calls(path, "end")] == [0, 1, 2]
    attempts = [each["tags"]["attempt"] for each in toy_tracker.calls(path, "begin")]
    assert attempts == ["1", "1", "2", "1"]


@pytest.mark.parametrize(
    ("track", "message"),
    [
        (
            {"toyy": "x"},
            "track.toyy is no tracker. Use absent, dying, hung, ",
        ),
        ({"toy": {"path": "x"}}, "track.toy.path is not an argument of toy."),
        ({"toy": {}}, "track.toy.file is missing, and toy needs it: text."),
        ({"toy": {"file": 3}}, "track.toy.file is 3, but must be text."),
        ({"absent": "x"}, "registered as toy_tracker_absent:ToyTracker in tuner.trackers, which"),
        ({"no_tracker": "x"}, "which is not a subclass of Tracker."),
        ({"toy": 3}, "track.toy is 3, but must be text, such as {tensorboard: runs/}, or a"),
        ("runs/", "track must be a mapping of trackers, such as {tensorboard: runs/}."),
    ],
)
def test_mistakes_are_refused_before_anything_starts(
    toy_folder: StudyFolder, track: object, message: str
) -> None:
    toy_folder.study(track=track)
    ended = toy_folder.tune()
    assert ended.code == EXIT_BAD_INPUT, ended.text
    assert message in ended.err
    assert "small.db" not in toy_folder.files()
