"""Two processes that save into one folder: a host that was cut off, and the one that took over."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tuner.trials.checkpoints import CheckpointFolder

REPOSITORY = Path(__file__).parents[3]
N_SAVES = 25
#: Saves, and loads what is there, as fast as it can; an error ends it.
WRITER = """
import sys, pathlib, torch
from tuner.trials.checkpoints import CheckpointFolder

folder, attempt, n_saves, kind = sys.argv[1:]
checkpoints = CheckpointFolder(pathlib.Path(folder), attempt_number=int(attempt))
go = pathlib.Path(folder).parent / "go"
(go.parent / f"ready-{attempt}").touch()
while not go.exists():
    pass
for step in range(int(n_saves)):
    state = {"w": torch.full((5000,), float(step)), "step": step, "attempt": int(attempt)}
    if kind == "sharded":
        checkpoints.save_sharded(state, step, rank=0)
    else:
        checkpoints.save(state, step)
    if step % 10 == 0:
        loaded = checkpoints.load()
        assert loaded is None or bool((loaded["w"] == loaded["step"]).all()), loaded
"""


@pytest.mark.parametrize(
    ("kind", "n_saves"),
    [("file", N_SAVES), pytest.param("sharded", N_SAVES, marks=pytest.mark.programs)],
)
def test_each_save_of_both_succeeds(tmp_path: Path, kind: str, n_saves: int) -> None:
    folder = tmp_path / "checkpoints"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder), str(attempt), str(n_saves), kind],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            stderr=subprocess.PIPE,
        )
        for attempt in (1, 2)
    ]
    while sum((tmp_path / f"ready-{attempt}").exists() for attempt in (1, 2)) < 2:
        assert all(each.poll() is None for each in writers), "a writer ended early"
    (tmp_path / "go").touch()
    errors = [each.communicate()[1].decode() for each in writers]
    assert [each.returncode for each in writers] == [0, 0], errors
    loaded = CheckpointFolder(folder).load()
    assert loaded is not None
    assert bool((loaded["w"] == loaded["step"]).all())
    assert not list(folder.glob("*.partial*")), "nothing half-written is left"


def test_what_another_attempt_is_writing_is_left_alone(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, attempt_number=2)
    others = tmp_path / "step-7.partial-1-elsewhere-12345"
    others.write_bytes(b"half of it")
    folder.save({"step": 1}, 1)
    folder.save_sharded({"step": 2}, 2, rank=0)
    assert others.read_bytes() == b"half of it"
    assert folder.load() == {"step": 2}
