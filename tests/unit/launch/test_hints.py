"""Errors that come from a common mistake are answered with what to write; others are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.launch.hints import hint_for, output_hint


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (AssertionError("Torch not compiled with CUDA enabled"), "Write trial.device in place of"),
        (RuntimeError("Found no NVIDIA driver on your system."), "Write trial.device in place of"),
        (
            FileNotFoundError(2, "No such file or directory", "data/x.csv"),
            f"Relative paths begin in {Path.cwd()}, the folder of the study file.",
        ),
        (AttributeError("'TrialContext' object has no attribute 'hparams'"), "trial.params"),
    ],
)
def test_error_has_a_hint(error: Exception, hint: str) -> None:
    assert hint in hint_for(error)


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(2, "No such file or directory", "/data/x.csv"),
        AttributeError("'Net' object has no attribute 'config'"),
        ValueError("CUDA"),
    ],
)
def test_other_errors_have_none(error: Exception) -> None:
    assert hint_for(error) == ""


def test_short_name_of_a_switch_is_left_out() -> None:
    output = "train.py: error: argument -a/--amp: ignored explicit argument 'true'"
    assert 'amp: ["--amp", ""]' in output_hint(output, ["python", "train.py"])
