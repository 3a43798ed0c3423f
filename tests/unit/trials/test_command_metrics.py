"""Metrics that a command prints, on their way to the dispatcher."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.unit.trials.recording_link import ATTEMPT, RecordingLink
from trials.worker.command_worker import _Minder
from trials.worker.metrics import line_reader
from tuner.messages import Assign

ASSIGN = Assign(
    attempt_id=ATTEMPT,
    trial_number=7,
    attempt_number=2,
    params={},
    seed=11,
    checkpoint_dir="checkpoints",
    objectives=("accuracy",),
    devices=("cpu:0",),
)


@pytest.fixture
def command() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        yield process


@pytest.mark.parametrize("name", ["n" * 256, "a\0b"], ids=["long", "nul"])
def test_metric_whose_name_no_database_holds_is_left_out_and_told_once(
    command: subprocess.Popen[bytes], capsys: pytest.CaptureFixture[str], name: str
) -> None:
    link = RecordingLink(assign=ASSIGN)
    read = line_reader(("accuracy",), None)
    minder = _Minder(command, link, None, read)  # type: ignore[arg-type]
    for step in (1, 2):
        line = {"step": step, "accuracy": 0.5, "loss": 0.1, name: 3.0}
        minder._take_line(json.dumps(line).encode())
    assert link.reports == [(step, {"accuracy": 0.5}, {"loss": 0.1}) for step in (1, 2)]
    assert capsys.readouterr().err.count("A metric of the output is left out: the name") == 1
