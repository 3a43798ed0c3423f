"""A schedule as a training script reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

import tuner
from tuner.errors import ConfigError
from tuner.queries.results.schedule import Phase, Schedule

SCHEDULE = Schedule(
    study="digits",
    trial=23,
    phases=[
        Phase(after_step=0, trial=4, params={"lr": 0.1, "epochs": 20}),
        Phase(after_step=10, trial=17, params={"lr": 0.12, "epochs": 20}),
        Phase(after_step=15, trial=23, params={"lr": 0.01, "epochs": 20}),
    ],
    last_step=20,
    values={"accuracy": 0.9},
)


@pytest.mark.parametrize(
    ("step", "lr"), [(0, 0.1), (1, 0.1), (10, 0.1), (11, 0.12), (15, 0.12), (16, 0.01), (99, 0.01)]
)
def test_each_step_has_its_parameters(step: int, lr: float) -> None:
    assert SCHEDULE.at(step) == {"lr": lr, "epochs": 20}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "schedule.json"
    path.write_text(SCHEDULE.as_json())
    assert tuner.load_schedule(path) == SCHEDULE


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "cannot be read: No such file or directory. `tuner schedule -o` writes one."),
        ("lr: 0.1", "is not a schedule (Expecting value: line 1 column 1 (char 0)). `tuner "),
        ("[]", "is not a schedule ("),
        ("{}", "is not a schedule ('version')"),
        ('{"version": 2, "phases": []}', "is not a schedule (it is of another version, or empty)"),
        ('{"version": 1, "phases": [{"after": 1}]}', "is not a schedule ("),
    ],
)
def test_a_wrong_file_gets_a_message(tmp_path: Path, content: str | None, expected: str) -> None:
    path = tmp_path / "schedule.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError) as caught:
        tuner.load_schedule(path)
    assert f"{path}: {expected}" in str(caught.value)
