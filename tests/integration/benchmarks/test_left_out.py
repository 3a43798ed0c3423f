"""What a table of curves knows of a configuration that is left out of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.search_quality.left_out import main
from benchmarks.search_quality.spaces import LCBENCH_SPACE


def errors(path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, list[float]]:
    """By interpolation: what the lines of the table say."""
    main([str(path)])
    lines = [line for line in capsys.readouterr().out.splitlines() if f"| {path.stem} |" in line]
    cells = [[each.strip() for each in line.strip("|").split("|")] for line in lines]
    return {each[1]: [float(cell) for cell in each[2:]] for each in cells}


def test_a_plane_is_known_exactly_and_its_best_are_not_the_mean_of_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    n = 400
    columns = []
    for each in LCBENCH_SPACE.values():
        low, high = float(each["low"]), float(each["high"])
        drawn = rng.uniform(size=n)
        columns.append(
            low * (high / low) ** drawn if each.get("log") else low + (high - low) * drawn
        )
    x = np.stack(columns, axis=1)
    momentum, dropout = x[:, 2], x[:, 6]
    path = tmp_path / "plane.npz"
    np.savez(
        path,
        names=np.array(list(LCBENCH_SPACE)),
        # Whole numbers where the space has them.
        x=np.where([each["type"] == "int" for each in LCBENCH_SPACE.values()], np.round(x), x),
        value=np.stack([momentum + dropout, 10.0 * (momentum - dropout)], axis=1),
        seconds=np.tile([1.0, 2.0], (n, 1)),
    )
    found = errors(path, capsys)
    # No value is beyond those of other rows, so that of the best rows a little is missing.
    assert found["spline through 64"] == pytest.approx([0.0, 0.0, 0.0], abs=0.02)
    mean, signed, absolute = found["mean of 5"]
    assert mean > 0.05
    assert signed < 0.0
    assert absolute >= -signed
