"""Mistakes that people make, and the exact words that they get: the tables beside this file.

Each entry is a user's folder: files by their paths, and study.yaml as `keys` that differ from the
small study below, or as `text`. `message` is what a start says that refuses the mistake; `detail`
is what is stored and shown where only a trial finds it; `line` is said at a start that goes on.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from tests.e2e.study_folder import Ended, StudyFolder
from tuner.errors import EXIT_BAD_INPUT, EXIT_BUDGET_REACHED, EXIT_STUDY_FAILED

pytestmark = pytest.mark.programs

_TABLES = Path(__file__).parent
_KEYS = """
study: small
trial: {function: train:train}
search_space:
  x: {type: float, low: 0, high: 1}
devices: cpu:1
budget: {trials: 1}
sampler: {name: random, seed: 1}
"""
_PROGRAM = "def train(trial):\n    return trial.params.x\n"
_ADDRESS = re.compile(r"0x[0-9a-f]+")
#: Other versions of Python mark other parts of a line.
_MARKS = re.compile(r"^[ ~^]+\n", re.MULTILINE)


def mistakes(table: str) -> list[object]:
    entries = yaml.safe_load((_TABLES / f"{table}.yaml").read_text())
    return [pytest.param(entry, id=entry["mistake"]) for entry in entries]


def blocks(text: str) -> dict[str, str]:
    """Top-level keys of YAML, each with its lines."""
    parts = re.split(r"^(?=\w)", text.strip() + "\n", flags=re.MULTILINE)
    return {part.partition(":")[0]: part for part in parts if part}


def start(folder: StudyFolder, entry: Mapping[str, str | None]) -> Ended:
    (folder.path / "forecast.py").unlink()
    own = {name: text for name, text in entry.items() if "." in name or "/" in name}
    folder.write("study.yaml", "".join((blocks(_KEYS) | blocks(entry.get("keys") or "")).values()))
    if "text" in entry:
        own["study.yaml"] = entry["text"]
    for name, text in ({"train.py": _PROGRAM} | own).items():
        if text is not None:
            folder.write(name, text)
        elif (folder.path / name).exists():
            (folder.path / name).unlink()
    return folder.tune(file=entry.get("argument") or "study.yaml")


def plain(folder: StudyFolder, text: str) -> str:
    text = _MARKS.sub("", text.rstrip() + "\n").rstrip()
    text = text.replace(str(folder.path), "{folder}").replace(sys.executable, "{python}")
    text = re.sub(rf"{re.escape(str(Path.home()))}(?=/(train.py|data)\b)", "{home}", text)
    return _ADDRESS.sub("0x0", text)


@pytest.mark.parametrize(
    "entry", [*mistakes("study_files"), *mistakes("functions"), *mistakes("commands")]
)
def test_refused_at_the_start(study_folder: StudyFolder, entry: Mapping[str, str | None]) -> None:
    ended = start(study_folder, entry)
    told = plain(study_folder, ended.err)
    assert (ended.code, told) == (EXIT_BAD_INPUT, (entry["message"] or "").rstrip())
    assert "Traceback" not in ended.err
    # Functions are checked with the database open; no trial is in it.
    assert "small.db" not in study_folder.files() or study_folder.states() == []


@pytest.mark.parametrize("entry", mistakes("runs"))
def test_found_by_a_trial(study_folder: StudyFolder, entry: Mapping[str, str | None]) -> None:
    ended = start(study_folder, entry)
    if (line := entry.get("line")) is not None:
        assert (ended.code, ended.err) == (EXIT_BUDGET_REACHED, "")
        assert line.rstrip() in plain(study_folder, ended.out).splitlines()
        return
    assert (ended.code, ended.err) == (EXIT_STUDY_FAILED, "")
    detail = (entry["detail"] or "").rstrip()
    (attempt,) = study_folder.attempts()
    assert plain(study_folder, attempt.detail) == detail
    shown = re.sub(r"^ {4}", "", plain(study_folder, ended.out), flags=re.MULTILINE)
    assert f"trial 0: failed.\n{detail}\nwhole log: " in shown


def test_a_method_that_is_not_called_prunes_all_trials(study_folder: StudyFolder) -> None:
    program = (
        "import optuna\ndef train(trial):\n    trial.report(1, 0)\n    if trial.should_prune:\n"
        "        raise optuna.TrialPruned\n    return 1\n"
    )
    ended = start(study_folder, {"train.py": program})
    lines = ended.out.splitlines()
    assert ended.code == EXIT_STUDY_FAILED
    assert (
        "train.py, line 4: trial.should_prune is a method and always true, so that no trial would "
        "complete. Write trial.should_prune()"
    ) in lines
    assert "trial 0: pruned: the program raised TrialPruned" in lines
    assert lines[-1] == (
        "No trial has completed: all were pruned. Write pruner: none to let each run to its end."
    )


def test_a_key_and_its_value_are_one_word(study_folder: StudyFolder) -> None:
    study_folder.study()
    ended = study_folder.tune("--set", "budget.trials", "10")
    said = " ".join(word for word in ended.err.split() if word != "│")
    assert ended.code == EXIT_BAD_INPUT
    assert "--set takes KEY=VALUE in one word. Write: --set budget.trials=10" in said


def test_there_are_more_than_forty() -> None:
    tables = ("study_files", "functions", "commands", "runs")
    names = [entry.id for table in tables for entry in mistakes(table)]  # type: ignore[attr-defined]
    assert len(names) == len(set(names)) >= 140


def test_validate_imports_nothing(study_folder: StudyFolder) -> None:
    folder = study_folder
    folder.study()
    folder.write("forecast.py", "open('imported', 'w')\ndef train(trial): ...\n")
    ended = folder.tuner("validate")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == [
        "forecast.py, line 1: open('imported', 'w') runs when the module is imported, at every "
        'start. Move it into the function, or below if __name__ == "__main__":',
        "study.yaml is fine: study 'small' would run on cpu:0, cpu:1.",
    ]
    folder.write("forecast.py", "open('imported', 'w')\ndef train(): ...\n")
    assert "whose signature is train()." in folder.tuner("validate").err
    assert folder.files() == {"forecast.py", "study.yaml"}
