"""What Slurm's commands answer where a job ends while they run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tuner.config.sections.engine import EngineConfig
from tuner.engines.slurm.engine import SlurmEngine
from tuner.errors import EngineError

ALREADY_DONE = 2021 % 256


@pytest.fixture
def scancel_exits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with the exit code of scancel; it is a stand-in, as no test can time such an end."""
    code = tmp_path / "code"
    for name, text in (("scancel", f'exit "$(cat {code})"'), ("scontrol", "exit 0")):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path), os.environ["PATH"]]))
    return code


def test_job_that_ends_while_it_is_cancelled_is_cancelled(scancel_exits: Path) -> None:
    scancel_exits.write_text(str(ALREADY_DONE))
    SlurmEngine(EngineConfig(name="slurm")).cancel(["2_0"])


def test_other_answer_of_scancel_is_an_error(scancel_exits: Path) -> None:
    scancel_exits.write_text("1")
    with pytest.raises(EngineError, match="Slurm does not cancel: exit code 1"):
        SlurmEngine(EngineConfig(name="slurm")).cancel(["2_0"])
