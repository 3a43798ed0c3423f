"""The reference page of study.yaml is up to date, and its examples are study files."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from docs.generate.study_file import study_file_page
from tuner.config.schema.json_schema import shipped_schema
from tuner.config.schema.reference import Key, all_keys
from tuner.config.study import Source, validate_study

KEYS = list(all_keys(shipped_schema()))
STUDY: dict[str, Any] = {
    "study": "s",
    "objectives": {"accuracy": "maximize"},
    "trial": {"function": "m:f"},
    "search_space": {
        "lr": {"type": "float", "low": 1e-4, "high": 0.1},
        "width": {"type": "int", "low": 16, "high": 256},
        "optimizer": {"type": "categorical", "choices": ["sgd", "adam", "adamw"]},
    },
}


ENDS = {"type": "float", "low": 0.01, "high": 0.5}
#: What a parameter has beside a key that does not go with a float from `low` to `high`.
BESIDE: dict[str, dict[str, object]] = {
    "step": {"type": "float", "low": 0.1, "high": 0.5},
    "choices": {"type": "categorical"},
    "values": {},
    "value": {},
    "min": {"max": 0.5},
    "max": {"min": 0.01},
    "distribution": {"min": 0.01, "max": 0.5},
    "q": {"distribution": "q_uniform", "min": 0.1, "max": 0.5},
}


def with_example(key: Key, example: object) -> dict[str, Any]:
    study = copy.deepcopy(STUDY)
    if "command" in key.path or "metrics" in key.path:
        study["trial"] = {"command": ["python", "train.py"]}
    if key.path[0] == "engine" and len(key.path) > 1:
        study["engine"] = {"name": "slurm"}
    if key.path == ("trial", "parallel"):
        study["trial"]["resources"] = {"gpus": 2}
    if key.path[0] == "search_space" and len(key.path) > 1:
        key_path = ("search_space", "drop", key.path[-1])
        study["search_space"]["drop"] = dict(BESIDE.get(key.path[-1], ENDS))
    else:
        key_path = key.path
    mapping = study
    for name in key_path[:-1]:
        mapping = mapping.setdefault(name, {})
    mapping[key_path[-1]] = example
    if key.path == ("search_space",):
        study["trial"] = STUDY["trial"]
    return study


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.dotted)
def test_example_of_a_key_is_accepted(key: Key, tmp_path: Path) -> None:
    source = Source(path=tmp_path / "study.yaml", file="study.yaml", text="")
    environ = {"DB_PASSWORD": "x"}
    for example in key.examples:
        study = with_example(key, example)
        validate_study(study, source=source, environ=environ, origins={})


def test_key_has_a_heading_and_its_facts() -> None:
    page = study_file_page()
    assert (
        "### `trial.stop_grace`\n\nTime that a trial has for saving its state when it is asked to "
        "stop. After that it is killed.\n\n"
        "Type: duration. Default: `10s`. Example: `stop_grace: 30s`.\n"
    ) in page
    assert "\n| [`study`](#study) | text | required | Name of the study in the database |\n" in page
    assert "Default: `sqlite:///<study>.db`. Example: `storage: sqlite:///digits.db`," in page


def test_type_of_a_parameter_has_the_choices_of_all_kinds() -> None:
    key = next(key for key in KEYS if key.dotted == "search_space.NAME.type")
    assert key.type_in_words == "`float` or `int` or `categorical`"
