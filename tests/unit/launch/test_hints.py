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


@pytest.mark.parametrize(
    ("output", "hint"),
    [
        ("AssertionError: Torch not compiled with CUDA enabled", "such as --device=cpu"),
        ("stty: 'standard input': Inappropriate ioctl for device", "shutil.get_terminal_size()"),
        ("OSError: [Errno 25] Inappropriate ioctl for device", "shutil.get_terminal_size()"),
        (
            "FileNotFoundError: [Errno 2] No such file or directory: 'data/x.csv'",
            "Relative paths of the program begin in the folder of the study file.",
        ),
        ("ModuleNotFoundError: No module named 'no_such_one'", "Install no_such_one for python"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/data/x.csv'", ""),
    ],
)
def test_output_has_a_hint(output: str, hint: str) -> None:
    assert hint in (found := output_hint(f"Traceback\n{output}", ["python", "train.py"]))
    assert bool(hint) == bool(found)


def test_module_of_the_own_folder_is_not_to_be_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script in a folder, and its package beside that folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "common_parts").mkdir()
    output = "ModuleNotFoundError: No module named 'common_parts.buffers'"
    hint = output_hint(output, ["python", "src/train.py"])
    assert "common_parts is in the folder of the study file" in hint
    assert "env: {PYTHONPATH: .}" in hint


def test_command_whose_port_is_used_by_another_trial_is_named() -> None:
    output = "DistNetworkError: port: 12355, code: -98, name: EADDRINUSE"
    hint = output_hint(output, ["python", "train.py"])
    assert "Trials run at the same time and need different ports" in hint
    assert 'os.environ["MASTER_PORT"] = str(s.getsockname()[1])' in hint
    assert output_hint("address of the server", ["python", "train.py"]) == ""
