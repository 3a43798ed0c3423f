"""Recorded curves: what lies between them, and what is said about tables that cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

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


def a_plane(x: NDArray[np.float64]) -> dict[str, Any]:
    """A table whose values are a plane over two parameters, and grow with each of three steps."""
    level = 1.0 + x[:, 0] - 2.0 * x[:, 1]
    steps = np.arange(1.0, 4.0)
    return {
        "names": np.array(["a", "b"]),
        "x": x,
        "value": level[:, None] * steps,
        "seconds": np.tile(10.0 * steps, (len(x), 1)),
    }


UNIT = {name: {"type": "float", "low": 0.0, "high": 1.0} for name in ("a", "b")}


def test_a_plane_is_found_exactly(tmp_path: Path) -> None:
    drawn = np.random.default_rng(0).uniform(size=(200, 2))
    found = table(tmp_path, parse_space(UNIT), **a_plane(drawn)).curve({"a": 0.5, "b": 0.4})
    assert found.values == pytest.approx([0.7, 1.4, 2.1])
    assert found.seconds == pytest.approx([10.0, 20.0, 30.0])


def test_a_bent_surface_is_found_better_than_by_the_mean_of_five(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, others = rng.uniform(size=(400, 2)), rng.uniform(size=(50, 2))

    def surface(at: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.sin(3 * at[:, 0]) * np.cos(4 * at[:, 1]))

    arrays = {**a_plane(x), "value": np.repeat(surface(x)[:, None], 3, axis=1)}
    curves = table(tmp_path, parse_space(UNIT), **arrays)
    found = [curves.curve({"a": float(a), "b": float(b)}).values[-1] for a, b in others]
    means = []
    for at in others:
        squares = ((x - at) ** 2).sum(axis=1)
        near = np.argsort(squares)[:5]
        means.append(np.average(surface(x)[near], weights=1 / squares[near]))
    true = surface(others)
    assert np.abs(found - true).mean() < 0.5 * np.abs(np.array(means) - true).mean()


def test_no_value_is_beyond_those_that_were_recorded(tmp_path: Path) -> None:
    # A cliff, on both sides of which a spline swings.
    value = np.repeat([0.0, 100.0], [6, 3])[:, None] * np.ones(4)
    curves = table(tmp_path, value=value)
    between = [curves.curve({"lr": float(lr)}).values[0] for lr in np.logspace(-4, 0, 50)]
    assert min(between) >= 0.0
    assert max(between) <= 100.0


def test_equal_configurations_share_their_weight(tmp_path: Path) -> None:
    # Two seeds of each: their mean is what such a configuration has.
    x = np.repeat(np.random.default_rng(0).uniform(size=(20, 2)), 2, axis=0)
    arrays = a_plane(x)
    arrays["value"] = arrays["value"] + np.tile([[-0.5], [0.5]], (20, 1))
    a, b = map(float, x[0])
    found = table(tmp_path, parse_space(UNIT), **arrays).curve({"a": a, "b": b})
    assert found.values == pytest.approx((1.0 + a - 2.0 * b) * np.arange(1.0, 4.0), abs=1e-6)


def test_neighbors_that_agree_in_a_parameter(tmp_path: Path) -> None:
    x = np.stack([np.linspace(0.0, 1.0, 8), np.full(8, 0.5)], axis=1)
    found = table(tmp_path, parse_space(UNIT), **a_plane(x)).curve({"a": 0.3, "b": 0.5})
    assert found.values == pytest.approx([0.3, 0.6, 0.9], abs=0.01)


@pytest.mark.parametrize("worst", [np.nan, np.inf, -np.inf])
def test_a_curve_diverges_where_the_nearest_one_does(worst: float, tmp_path: Path) -> None:
    value = arrays()["value"]
    value[6:, 2:] = worst
    curves = table(tmp_path, value=value)
    assert curves.curve({"lr": 0.009}).values == pytest.approx([3.0, 6.0, 9.0, 12.0], abs=0.2)
    diverged = curves.curve({"lr": 0.5}).values
    assert 4.5 <= diverged[0] <= 5.0
    assert 9.0 <= diverged[1] <= 10.0
    assert diverged[2:] == pytest.approx([worst, worst], nan_ok=True)


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
    says = "There is no file" if text is None else "is not an .npz file of plain arrays"
    with pytest.raises(ConfigError, match=says) as raised:
        read_table(file, a_space())
    assert "pickle" not in str(raised.value)


def test_an_array_of_objects_is_refused_without_advice_to_load_a_pickle(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="without object arrays") as raised:
        table(tmp_path, names=np.array(["lr"], dtype=object))
    assert "pickle" not in str(raised.value)
