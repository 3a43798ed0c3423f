"""Recorded curves: what lies between them, and what is said about tables that cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tuner.errors import ConfigError
from tuner.search_spaces import SearchSpace, parse_space
from tuner.simulate.curves import CurveTable, read_table


def a_space(**more: object) -> SearchSpace:
    space = parse_space({"lr": {"type": "float", "low": 1e-4, "high": 1.0, "log": True}, **more})
    assert isinstance(space, SearchSpace)
    return space


def arrays(n: int = 9, steps: int = 4) -> dict[str, Any]:
    """Value and seconds grow with the logarithm of lr."""
    lr = np.logspace(-4, 0, n)
    level = np.log10(lr) + 5
    return {
        "names": np.array(["lr"]),
        "x": lr[:, None],
        "value": level[:, None] * np.arange(1, steps + 1),
        "seconds": level[:, None] * np.arange(1, steps + 1) * 10,
    }


def table(path: Path, space: SearchSpace | None = None, **changes: Any) -> CurveTable:
    file = path / "curves.npz"
    kept = {key: each for key, each in {**arrays(), **changes}.items() if each is not None}
    np.savez(file, **kept)
    return read_table(file, space or a_space())


def test_a_recorded_configuration_has_its_own_curve(tmp_path: Path) -> None:
    curve = table(tmp_path).curve({"lr": 0.01})
    assert curve.values == pytest.approx([3.0, 6.0, 9.0, 12.0], rel=1e-6)
    assert curve.seconds == pytest.approx([30.0, 60.0, 90.0, 120.0], rel=1e-6)


def test_one_between_two_lies_between_them_on_the_scale_of_the_space(tmp_path: Path) -> None:
    values = table(tmp_path).curve({"lr": 10**-2.25}).values
    assert 2.5 < values[0] < 3.0
    assert values[0] == pytest.approx(2.75, abs=0.1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seconds": None}, "has no seconds"),
        ({"names": np.array(["learning_rate"])}, "The space has 'lr', but the table has learning"),
        ({"x": np.zeros(9)}, "but must have"),
        ({"value": np.zeros((9, 3))}, "but must have"),
        ({"seconds": -arrays()["seconds"]}, "seconds must grow"),
    ],
    ids=["missing", "name", "flat", "steps", "backwards"],
)
def test_a_table_that_cannot_be_used(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        table(tmp_path, **changes)


def test_a_categorical_parameter_is_refused(tmp_path: Path) -> None:
    space = a_space(opt={"type": "categorical", "choices": ["a", "b"]})
    x = np.concatenate([arrays()["x"], np.zeros((9, 1))], axis=1)
    with pytest.raises(ConfigError, match="'opt' is categorical"):
        table(tmp_path, space, names=np.array(["lr", "opt"]), x=x)


@pytest.mark.parametrize("text", [None, b"", b"no zip", b"PK\x03\x04torn"])
def test_a_file_that_is_none(text: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "curves.npz"
    if text is not None:
        file.write_bytes(text)
    with pytest.raises(ConfigError, match="curves"):
        read_table(file, a_space())
