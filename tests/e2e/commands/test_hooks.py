"""A study that tells the user's own programs what happens, from its first best trial to its end."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from tests.e2e.study_folder import StudyFolder, wait_until
from tuner.errors import EXIT_BAD_INPUT, EXIT_BUDGET_REACHED, EXIT_INTERRUPTED

KEEP = ["sh", "-c", "cat >> told.jsonl"]
HOOKS = {"on_finish": KEEP, "on_best": KEEP, "on_failure": KEEP}
FAILS_ONCE = """
def train(trial):
    if trial.number == 1:
        raise ValueError("no luck")
    return float(trial.number)
"""
ENDLESS = """
import time
from pathlib import Path

def train(trial):
    Path(f"begun-{trial.number}").touch()
    while True:
        time.sleep(0.02)
"""


def told(folder: StudyFolder) -> dict[str, list[dict[str, Any]]]:
    by_hook: dict[str, list[dict[str, Any]]] = {key: [] for key in HOOKS}
    for line in (folder.path / "told.jsonl").read_text().splitlines():
        each = json.loads(line)
        by_hook[each["hook"]].append(each)
    return by_hook


def test_study_with_all_three_hooks(study_folder: StudyFolder) -> None:
    study_folder.write("forecast.py", FAILS_ONCE)
    study_folder.study(**HOOKS, devices="cpu:1")
    ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    heard = told(study_folder)
    assert [best["trial"] for best in heard["on_best"]] == [0]
    assert heard["on_best"][0]["values"] == {"value": 0.0}
    assert set(heard["on_best"][0]["params"]) == {"x"}
    (failure,) = heard["on_failure"]
    assert (failure["trial"], failure["outcome"], failure["cause"]) == (1, "failed", "exception")
    assert "no luck" in failure["detail"]
    assert "no luck" in (study_folder.path / failure["log"]).read_text()
    (finish,) = heard["on_finish"]
    assert finish["reason"].startswith("budget reached")
    assert finish["counts"] == {"completed": 3, "pruned": 0, "failed": 1}
    assert finish["best"]["trial"] == 0
    assert (study_folder.path / "tuner-files/small/hooks.log").exists()


HALF_FAIL = """
def train(trial):
    if trial.number % 2:
        raise ValueError("odd")
    return float(trial.number)
"""


def test_failures_are_told_while_the_study_runs(study_folder: StudyFolder) -> None:
    study_folder.write("forecast.py", HALF_FAIL)
    study_folder.study(on_alert=KEEP, devices="cpu:1", budget={"trials": 9})
    ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    (alert,) = map(json.loads, (study_folder.path / "told.jsonl").read_text().splitlines())
    assert (alert["hook"], alert["alert"]) == ("on_alert", "failures")
    assert alert["text"] == "2 of 5 finished trials failed"


def test_hook_that_fails_ends_no_study(study_folder: StudyFolder) -> None:
    study_folder.study(on_best=["sh", "-c", "echo out of order; exit 7"])
    ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED
    assert ended.out.count("on_best ended with exit code 7.") == 1
    assert "out of order" in (study_folder.path / "tuner-files/small/hooks.log").read_text()


def test_end_by_ctrl_c_is_told(study_folder: StudyFolder) -> None:
    study_folder.write("forecast.py", ENDLESS)
    study_folder.study(**HOOKS, trial={"function": "forecast:train", "stop_grace": "0.2s"})
    running = study_folder.start()
    wait_until(lambda: "begun-0" in study_folder.files(), "a trial runs")
    running.signal(signal.SIGINT)
    assert running.wait().code == EXIT_INTERRUPTED
    (finish,) = told(study_folder)["on_finish"]
    assert finish["is_interrupted"]
    assert finish["reason"] == "interrupted"


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        ("notify-me done", "on_best is 'notify-me done', but must be a list of words"),
        (["no-such-program-anywhere"], "on_best[0] is 'no-such-program-anywhere', but there is no"),
        (["./missing.sh"], "on_best[0] is './missing.sh', but there is no program"),
    ],
)
def test_hook_that_cannot_be_started_is_refused(
    study_folder: StudyFolder, argv: object, problem: str
) -> None:
    study_folder.study(on_best=argv)
    ended = study_folder.tune("--dry-run")
    assert ended.code == EXIT_BAD_INPUT
    assert f"study.yaml: {problem}" in ended.err
