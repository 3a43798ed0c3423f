"""Trials as runs of TensorBoard, read back as TensorBoard reads them."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer
from tensorboard.plugins.hparams import metadata

from tests.e2e.study_folder import StudyFolder, wait_until
from tuner.errors import EXIT_BUDGET_REACHED

pytestmark = pytest.mark.programs

#: A program that knows nothing of the tuner.
COMMAND = """
import json, sys

for step in range(1, 4):
    print(json.dumps({"step": step, "accuracy": float(sys.argv[1]) * step, "loss": 1 / step}))
"""
#: The first attempt of trial 0 stays at step 3; the second one begins again at step 1.
STAYS = """
import time

def train(trial):
    for step in range(1, 6):
        trial.report(float(step + 10 * (trial.attempt_number - 1)), step)
        if trial.attempt_number == 1 and step == 3:
            time.sleep(3600)
    return 1.0
"""


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Steps and values of a run, as they were written."""
    # 0: every point, not a sample of them.
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return {
        tag: [(each.step, each.value) for each in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def test_command_has_curves_parameters_and_outcomes(study_folder: StudyFolder) -> None:
    study_folder.write("train.py", COMMAND)
    study_folder.study(
        trial={"command": ["python", "train.py", "{x}"]},
        objectives={"accuracy": "maximize"},
        pruner="none",
        track={"tensorboard": "runs/"},
    )
    ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    runs = study_folder.path / "runs/small"
    rows = study_folder.rows("select trial_id, param_value from trial_params order by trial_id")
    for number, (_, x) in enumerate(rows):
        found = scalars(runs / f"trial-{number}")
        assert found["accuracy"] == [(step, pytest.approx(x * step)) for step in (1, 2, 3)]
        assert found["loss"] == [(step, pytest.approx(1 / step)) for step in (1, 2, 3)]
        assert found["final/accuracy"] == [(3, pytest.approx(3 * x))]
    assert len(rows) == 4


def test_hyperparameters_and_way_back_are_shown(study_folder: StudyFolder) -> None:
    study_folder.study(
        track={"tensorboard": "runs"},
        search_space={
            "x": {"type": "float", "low": 0, "high": 1},
            "kind": {"type": "categorical", "choices": ["a", True]},
            "sizes": {"value": [1, 2]},
        },
        budget={"trials": 1},
    )
    assert study_folder.tune().code == EXIT_BUDGET_REACHED
    many = EventMultiplexer().AddRunsFromDirectory(str(study_folder.path / "runs"))
    many.Reload()
    run = many.GetAccumulator("small/trial-0")
    about = run.summary_metadata[metadata.SESSION_START_INFO_TAG].plugin_data.content
    parameters = metadata.parse_session_start_info_plugin_data(about).hparams
    assert set(parameters) == {"x", "kind", "sizes"}
    assert [each.number_value for each in parameters["sizes"].list_value.values] == [1, 2]
    (text,) = run.Tensors("trial/text_summary")
    assert "| study | small |" in text.tensor_proto.string_val[0].decode()
    (text,) = run.Tensors("outcome/text_summary")
    assert "| outcome | completed |" in text.tensor_proto.string_val[0].decode()


def test_killed_dispatcher_leaves_runs_that_continue(study_folder: StudyFolder) -> None:
    study_folder.write("forecast.py", STAYS)
    study_folder.study(track={"tensorboard": "runs"}, budget={"trials": 1})
    run = study_folder.path / "runs/small/trial-0"

    def has_begun() -> bool:
        return run.is_dir() and len(scalars(run).get("value", ())) == 3

    running = study_folder.start()
    wait_until(has_begun, "three steps are written")
    running.signal(signal.SIGKILL)
    running.wait()
    # What was written and not noted is found in the run itself.
    for path in (study_folder.path / "tuner-files/small/trackers").iterdir():
        path.unlink()
    assert study_folder.tune().code == EXIT_BUDGET_REACHED
    assert scalars(run)["value"] == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 14.0), (5, 15.0)]
    again = study_folder.tune()
    assert again.code == EXIT_BUDGET_REACHED
    assert len(scalars(run)["value"]) == 5


def test_new_study_of_the_same_name_has_a_folder_of_its_own(study_folder: StudyFolder) -> None:
    study_folder.study(track={"tensorboard": "runs"}, budget={"trials": 1})
    assert study_folder.tune().code == EXIT_BUDGET_REACHED
    (study_folder.path / "small.db").unlink()
    assert study_folder.tune().code == EXIT_BUDGET_REACHED
    names = sorted(path.name for path in (study_folder.path / "runs").iterdir())
    assert len(names) == 2
    assert names[0] == "small"
    assert names[1].startswith("small-")


def test_folder_that_cannot_be_written_does_not_stop_a_study(study_folder: StudyFolder) -> None:
    study_folder.write("runs", "a file")
    study_folder.study(track={"tensorboard": "runs"}, trial={"function": "forecast:train"})
    running = study_folder.start()
    wait_until(lambda: "track.tensorboard cannot be written" in running.out, "it is said")
    running.signal(signal.SIGINT)
    running.wait()
    assert study_folder.states() == ["COMPLETE"] * 4
