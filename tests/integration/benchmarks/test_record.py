"""Recording curves of real trainings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.search_quality.record.__main__ import main
from benchmarks.search_quality.spaces import LCBENCH_SPACE
from benchmarks.search_quality.tasks import read_task


def test_what_is_recorded_can_be_searched_on(tmp_path: Path) -> None:
    path = tmp_path / "curves.npz"
    size = ["--data", "cancer", "--configurations", "3", "--epochs", "2"]
    main([*size, "--jobs", "2", "--output", str(path)])
    task = read_task(path)
    assert task.table.values.shape == (3, 2)
    assert np.all((task.table.values >= 0) & (task.table.values <= 100))
    assert set(task.table.params(0)) == set(LCBENCH_SPACE)
    assert task.best >= task.median


#: By day: `test_what_is_recorded_can_be_searched_on`, once.
@pytest.mark.nightly
def test_the_same_seed_records_the_same(tmp_path: Path) -> None:
    size = ["--data", "cancer", "--configurations", "2", "--epochs", "1"]
    found = []
    for name in ("first", "second"):
        path = tmp_path / f"{name}.npz"
        main([*size, "--output", str(path)])
        found.append(np.load(path)["value"])
    assert np.array_equal(*found)
