"""Trials as runs of W&B in its offline mode, read back from the files that `wandb sync` sends."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.study_folder import StudyFolder, wait_until
from tests.e2e.trackers.tracked_programs import STAYS, TRAIN
from tuner.errors import EXIT_BAD_INPUT, EXIT_BUDGET_REACHED

#: A log file of LevelDB after a header of its own.
_HEADER, _BLOCK, _RECORD_HEADER = 7, 32768, 7
_FULL, _LAST = 1, 4
#: W&B's own, of libraries that are newer than it.
pytestmark = [pytest.mark.programs, pytest.mark.filterwarnings("ignore")]
# As the sweeps of W&B's public examples: no options, the parameters are in wandb.config.
SWEPT = """
import json
import wandb

run = wandb.init(config={"lr": 9.0, "kind": "default", "batch": 64}, mode="offline")
config = wandb.config
print(json.dumps({"step": 0, "val_loss": config.lr}))
print(config.kind, config.batch)
run.finish()
"""
SWEEP = """
program: swept.py
method: random
metric: {name: val_loss, goal: minimize}
parameters:
  lr: {min: 0.001, max: 0.1}
  kind: {values: [sgd, adam]}
run_cap: 2
"""
OFFLINE = {"wandb": {"project": "mine", "mode": "offline"}}


def records(path: Path) -> Iterator[Any]:
    """The records of a run's file."""
    from wandb.proto import wandb_internal_pb2

    data, at, whole = path.read_bytes(), _HEADER, b""
    while at + _RECORD_HEADER <= len(data):
        left = _BLOCK - at % _BLOCK
        if left < _RECORD_HEADER:
            at += left
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        whole += data[at + _RECORD_HEADER : at + _RECORD_HEADER + size]
        at += _RECORD_HEADER + size
        if kind in (_FULL, _LAST):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            whole = b""
            yield record


class StoredRun:
    """What the files of one run hold, those of an interrupted part first."""

    def __init__(self, paths: list[Path]) -> None:
        self.parts = len(paths)
        self.history: list[dict[str, Any]] = []
        self.summary: dict[str, Any] = {}
        self.config: dict[str, Any] = {}
        self.exit_code: int | None = None
        for record in (each for path in paths for each in records(path)):
            self._add(record)

    def curve(self, name: str) -> list[tuple[int, float]]:
        return [(row["step"], row[name]) for row in self.history if name in row]

    def _add(self, record: Any) -> None:
        match record.WhichOneof("record_type"):
            case "run":
                self.name, self.project = record.run.display_name, record.run.project
                self.group = record.run.run_group
                self.config |= _items(record.run.config.update)
            case "config":
                self.config |= _items(record.config.update)
            case "history":
                self.history.append(_items(record.history.item))
            case "summary":
                self.summary |= _items(record.summary.update)
            case "exit":
                self.exit_code = record.exit.exit_code


def _items(items: Any) -> dict[str, Any]:
    return {each.key or ".".join(each.nested_key): json.loads(each.value_json) for each in items}


def runs(folder: StudyFolder) -> list[StoredRun]:
    """In the order of their trials."""
    by_id: dict[str, list[Path]] = {}
    for path in sorted((folder.path / "wandb").glob("offline-run-*/*.wandb")):
        by_id.setdefault(path.stem, []).append(path)
    in_order = sorted(by_id, key=lambda name: int(name.rpartition("-")[2]))
    return [StoredRun(by_id[name]) for name in in_order]


def test_runs_hold_parameters_curves_and_outcomes(study_folder: StudyFolder) -> None:
    study_folder.write("forecast.py", TRAIN)
    study_folder.study(
        track=OFFLINE,
        search_space={"x": {"type": "float", "low": 0, "high": 1}, "sizes": {"value": [1, 2]}},
        pruner="none",
    )
    ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert "track" not in ended.text
    found = runs(study_folder)
    assert [run.name for run in found] == [f"small/trial-{n}" for n in range(4)]
    assert {(run.project, run.group) for run in found} == {("mine", "small")}
    assert [run.exit_code for run in found] == [0, 1, 0, 0]
    outcomes = [run.summary["outcome"] for run in found]
    assert outcomes == ["completed", "failed", "completed", "completed"]
    first = found[0]
    assert first.config["sizes"] == [1, 2]
    x = first.config["x"]
    assert first.curve("value") == [(n, pytest.approx(x * n)) for n in (1, 2, 3)]
    assert first.summary["final/value"] == pytest.approx(x)
    assert first.config["trial.devices"].startswith("cpu:")
    assert Path(first.config["trial.log"]).exists()


def test_killed_dispatcher_leaves_runs_that_continue(study_folder: StudyFolder) -> None:
    study_folder.write("forecast.py", STAYS)
    study_folder.study(track=OFFLINE, budget={"trials": 1})
    running = study_folder.start()
    progress = study_folder.path / "tuner-files/small/trackers"
    wait_until(
        lambda: any('"value": 3' in path.read_text() for path in progress.glob("*.json")),
        "three steps are written",
    )
    running.signal(signal.SIGKILL)
    running.wait()
    wait_until(lambda: runs(study_folder)[0].exit_code is not None, "what was buffered is written")
    assert study_folder.tune().code == EXIT_BUDGET_REACHED
    (run,) = runs(study_folder)
    assert run.parts == 2
    assert run.curve("value") == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 14.0), (5, 15.0)]
    assert run.config["trial.attempt"] == "2"
    assert run.summary["outcome"] == "completed"


def test_missing_login_does_not_stop_a_study(study_folder: StudyFolder) -> None:
    study_folder.env |= {"HOME": str(study_folder.path), "WANDB_BASE_URL": "http://127.0.0.1:9"}
    study_folder.study(track={"wandb": "mine"})
    running = study_folder.start()
    wait_until(lambda: "track.wandb cannot be written" in running.out, "it is said")
    running.signal(signal.SIGINT)
    running.wait()
    assert study_folder.states() == ["COMPLETE"] * 4


def test_unknown_mode_is_refused(study_folder: StudyFolder) -> None:
    study_folder.study(track={"wandb": {"project": "mine", "mode": "of"}})
    ended = study_folder.tune()
    assert ended.code == EXIT_BAD_INPUT
    assert "track.wandb is refused by wandb: mode is 'of', but must be online or" in ended.err


def test_program_of_a_sweep_gets_its_parameters_in_its_config(study_folder: StudyFolder) -> None:
    study_folder.write("swept.py", SWEPT)
    study_folder.write("sweep.yaml", SWEEP)
    assert study_folder.tuner("init", "--from", "sweep.yaml").code == 0
    ended = study_folder.tune("--set", "devices=cpu:1")
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    values = "select value from trial_values order by trial_id"
    chosen = "select param_value from trial_params where param_name = 'lr' order by trial_id"
    assert study_folder.rows(values, database="sweep.db") == study_folder.rows(
        chosen, database="sweep.db"
    )
    log = study_folder.tuner("logs", "0").out
    # What the sweep does not have is the program's.
    assert {"sgd 64", "adam 64"} & set(log.splitlines())
