"""A dispatcher that is killed with -9 leaves nothing behind: no worker, guardian or fork server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.launch.conftest import children_of, is_process_alive, until

STUDY = """
study: sleepers
trial: {function: "sleepers:train"}
search_space: {x: {type: float, low: 0, high: 1}}
devices: cpu:2
"""
SLEEPERS = """
import pathlib, signal, subprocess, time

def train(trial):
    if trial.number == 1:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen(["sleep", "600"])
    pathlib.Path(f"ready-{trial.number}").touch()
    time.sleep(600)
"""


@pytest.fixture
def dispatcher(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    (tmp_path / "study.yaml").write_text(STUDY)
    (tmp_path / "sleepers.py").write_text(SLEEPERS)
    with (tmp_path / "output").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tuner.run", "study.yaml"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        yield process
        process.kill()
        process.wait()


def test_nothing_lives_on_after_kill_9(dispatcher: subprocess.Popen[bytes], tmp_path: Path):
    ready = [tmp_path / f"ready-{number}" for number in range(2)]
    until(lambda: all(file.exists() for file in ready), "two trials run")
    family = children_of(dispatcher.pid)
    assert len(family) >= 6, "guardian, fork server, two workers and a grandchild of each"
    dispatcher.send_signal(signal.SIGKILL)
    dispatcher.wait()
    until(lambda: not any(map(is_process_alive, family)), "the whole family is gone")
