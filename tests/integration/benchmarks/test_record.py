"""Recording curves of real trainings."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.search_quality.__main__ import main as search
from benchmarks.search_quality.record.__main__ import PROGRAMS, jobs
from benchmarks.search_quality.record.__main__ import main as record
from benchmarks.search_quality.record.job import SCHEDULES, Job
from benchmarks.search_quality.spaces import LCBENCH_SPACE
from benchmarks.search_quality.spoilt.ways import WAYS
from benchmarks.search_quality.tasks import read_task

TABLES = Path(__file__).parents[3] / "benchmarks" / "search_quality" / "tables"


def test_what_is_recorded_can_be_searched_on(tmp_path: Path) -> None:
    path = tmp_path / "curves.npz"
    size = ["--data", "cancer", "--configurations", "3", "--epochs", "2"]
    record([*size, "--jobs", "2", "--output", str(path)])
    task = read_task(path)
    assert task.table.values.shape == (3, 2)
    assert np.all((task.table.values >= 0) & (task.table.values <= 100))
    assert set(task.table.params(0)) == set(LCBENCH_SPACE)
    assert task.best >= task.median


@pytest.mark.parametrize(("data", "largest"), [("images", 100.0), ("text", 0.0)])
def test_a_table_of_another_program_has_its_space(
    tmp_path: Path, data: str, largest: float
) -> None:
    path, output = tmp_path / "curves.npz", tmp_path / "figures.json"
    record(["--data", data, "--configurations", "3", "--epochs", "3", "--output", str(path)])
    task = read_task(path)
    assert {each.name for each in task.space.parameters} == set(PROGRAMS[data].space)
    assert task.table.values.shape == (3, 3)
    assert np.all(task.table.values <= largest)
    words = ["--systems", "random", "--workers", "2", "--seeds", "1", "--jobs", "1"]
    search([str(path), *words, "--restart-share", "0.05", "--output", str(output)])
    (found,) = json.loads(output.read_text())["results"]
    # Nothing is known before the first start is over, in shares of ten median trainings.
    assert found["steps"][1][0] > 0.005


@pytest.mark.parametrize("path", sorted(TABLES.glob("*.npz")), ids=lambda path: path.stem)
def test_a_table_of_the_repository_is_of_its_program(path: Path) -> None:
    _, data, schedule = path.stem.split("_")
    task = read_task(path)
    assert schedule in SCHEDULES
    assert {each.name for each in task.space.parameters} == set(PROGRAMS[data].space)
    assert task.table.values.shape == (1000, 52)
    job = the_first_job(data, schedule)
    assert task.table.params(0) == pytest.approx(job.params)
    # The learning rate of the first epoch is the same in each number of epochs.
    assert PROGRAMS[data].train(job).values == pytest.approx(task.table.values[0, :1], rel=0.1)


def the_first_job(data: str, schedule: str) -> Job:
    (job,) = jobs(Namespace(data=data, schedule=schedule, configurations=1, epochs=1, seed=0))
    return job


def test_what_is_trained_learns(tmp_path: Path) -> None:
    """More than by chance: a tenth of the digits, and 6 bits of 64 characters."""
    chance = {"images": 10.0, "text": -6.0}
    for data, program in PROGRAMS.items():
        if data in chance:
            params = {
                name: 0.5 * (each["low"] + each["high"]) for name, each in program.space.items()
            }
            params |= {"learning_rate": 3e-3, "batch_size": 16, "sequence_length": 16}
            job = Job(data=data, schedule="cosine", params=params, n_epochs=6, seed=0)
            assert program.train(job).values[-1] > chance[data] + 1.0


def test_a_device_is_for_perceptrons(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        record(["--data", "text", "--device", "cpu"])
    assert "--data must be of digits, cancer, cubes" in capsys.readouterr().err


def test_a_way_to_make_a_task_harder_says_which_space_it_needs(tmp_path: Path) -> None:
    path = tmp_path / "curves.npz"
    record(["--data", "text", "--configurations", "3", "--epochs", "1", "--output", str(path)])
    task = read_task(path)
    with pytest.raises(ValueError, match=r"curves has the parameters .* is for batch_size, "):
        WAYS["whole"](task)
    assert WAYS["noise"](task).space == task.space


#: By day: `test_what_is_recorded_can_be_searched_on`, once.
@pytest.mark.nightly
def test_the_same_seed_records_the_same(tmp_path: Path) -> None:
    size = ["--data", "cancer", "--configurations", "2", "--epochs", "1"]
    found = []
    for name in ("first", "second"):
        path = tmp_path / f"{name}.npz"
        record([*size, "--output", str(path)])
        found.append(np.load(path)["value"])
    assert np.array_equal(*found)
