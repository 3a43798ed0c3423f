"""Configurations as people write them down."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.actions.config_input import read_given
from tuner.errors import ConfigError


def test_mapping_on_the_command_line() -> None:
    (json,) = read_given(['{"lr": 0.1, "name": "a"}'])
    assert (json.place, json.params, json.is_text) == ("--params", {"lr": 0.1, "name": "a"}, False)
    assert read_given(["{lr: 1e-4}"])[0].params == {"lr": 0.0001}
    assert [each.params for each in read_given(["[{a: 1}, {a: 2}]", "{b: 3}"])] == [
        {"a": 1},
        {"a": 2},
        {"b": 3},
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("one.yaml", "lr: 0.1\n"),
        ("list.yaml", "- {lr: 0.1}\n"),
        ("list.json", '[{"lr": 0.1}]'),
        ("best.yaml", "- study: s\n  params: {lr: 0.1}\n"),
        ("trials.json", '[\n{"number": 3, "params": {"lr": 0.1}}\n]'),
    ],
)
def test_files(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    (found,) = read_given([str(tmp_path / name)])
    assert (found.place, found.params) == (str(tmp_path / name), {"lr": 0.1})


def test_csv_is_text_without_its_empty_cells(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text('lr,name\n0.1,"x, y"\n,z\n')
    first, second = read_given([str(file)])
    assert (first.params, first.is_text) == ({"lr": "0.1", "name": "x, y"}, True)
    assert (second.place, second.params) == (f"{file} line 3", {"name": "z"})


def test_csv_of_tuner_trials_has_its_parameters_marked(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("number,values_x,params_x\n3,0.5,0.1\n")
    assert read_given([str(file)])[0].params == {"x": "0.1"}


@pytest.mark.parametrize(
    ("word", "text", "message"),
    [
        ("none.yaml", None, r"--params is '.*none.yaml', which cannot be read: No such file"),
        ("a.yaml", "a: [", r"a.yaml is not to be read: line 1"),
        ("a.yaml", "- 3\n- 4\n", r"a.yaml, configuration 1 is 3, but must be parameters"),
        ("a.yaml", "[]", r"--params holds no configuration"),
        ("a.csv", "lr\n1,2\n", r"a.csv: line 2 has more cells than there are columns"),
        ("a.csv", "lr\n", r"--params holds no configuration"),
    ],
    ids=["absent", "no yaml", "no mapping", "empty list", "ragged", "empty csv"],
)
def test_mistakes(word: str, text: str | None, message: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / word).write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_given([str(tmp_path / word)])
