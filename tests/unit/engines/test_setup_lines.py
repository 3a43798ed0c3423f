"""Lines of `engine.setup` that load environment modules."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tuner.engines.setup_lines import setup_lines


@pytest.mark.parametrize(
    "line",
    [
        "module load cuda/12.4",
        "  ml cuda",
        "export A=1; module load cuda",
        "[ -d /cuda ] && module load cuda",
        "{ module purge; }",
    ],
)
def test_module_is_defined_before_it_is_used(line: str) -> None:
    lines = setup_lines(["export B=2", line])
    assert "type module" in lines[0]
    assert lines[-2:] == ("export B=2", line)


@pytest.mark.parametrize(
    "line", ["source ~/venvs/train/bin/activate", "export NAME=module", "python -m module load"]
)
def test_other_lines_stay_alone(line: str) -> None:
    assert setup_lines([line]) == (line,)


def test_a_module_that_the_shell_has_is_used(tmp_path: Path) -> None:
    script = "\n".join(
        ['module() { echo "own $*"; }', *setup_lines(["module load cuda"]), "echo after"]
    )
    done = subprocess.run(["bash", "-s"], input=script, capture_output=True, text=True, check=True)
    assert done.stdout == "own load cuda\nafter\n"


def test_a_profile_of_modules_is_read(tmp_path: Path) -> None:
    (tmp_path / "init").mkdir()
    (tmp_path / "init" / "bash").write_text('module() { echo "init $*"; }\n')
    script = "\n".join([f"MODULESHOME={tmp_path}", *setup_lines(["module load cuda"])])
    # Without what this machine has.
    script = script.replace("/etc/profile.d/", f"{tmp_path}/none/")
    done = subprocess.run(["bash", "-s"], input=script, capture_output=True, text=True, check=True)
    assert done.stdout == "init load cuda\n"
