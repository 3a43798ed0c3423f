"""README and pages whose blocks name their files (`# train.py`, `# study.yaml`) run as pasted."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from tests.e2e.study_folder import REPOSITORY, StudyFolder
from tuner.errors import EXIT_BUDGET_REACHED

pytestmark = pytest.mark.programs

N_TRIALS = 3
_NAMED = re.compile(r"```\w+\n(# (\w+\.\w+)\n.*?)```", re.DOTALL)
#: Commands of a page that only read what its study has left.
_LOOKS = re.compile(r"^tuner ((?:validate|best|trials|status) study\.yaml[^>\n]*)$", re.MULTILINE)
PAGES = [
    page
    for page in (REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md")))
    if _NAMED.search(page.read_text())
]


#: Frameworks whose program is tried by day as it is paused, killed and resumed (test_frameworks).
NIGHTLY = {
    f"{name}.md" for name in ("keras", "lightgbm", "scikit-learn", "transformers", "xgboost")
}


def _pages() -> list[ParameterSet]:
    return [
        pytest.param(page, id=page.name, marks=[pytest.mark.nightly] * (page.name in NIGHTLY))
        for page in PAGES
    ]


def test_pages_with_a_whole_study() -> None:
    names = {page.name for page in PAGES}
    assert {"README.md", "quickstart.md", "checkpoints.md", "multi-gpu.md"} <= names


@pytest.mark.parametrize("page", _pages())
def test_study_of_a_page_runs(page: Path, study_folder: StudyFolder) -> None:
    for text, name in _NAMED.findall(page.read_text()):
        study_folder.write(name, text)
    on_slots = ["--set", "devices=cpu:2"]
    if page.name == "multi-gpu.md":
        on_slots += ["--set", "trial.resources={cpus: 2}"]
    ended = study_folder.tune("--trials", str(N_TRIALS), *on_slots)
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    shown = study_folder.tuner("trials", "study.yaml", "--json")
    outcomes = {trial["state"] for trial in json.loads(shown.out)}
    assert outcomes <= {"completed", "pruned"}
    assert "completed" in outcomes
    for line in _LOOKS.findall(page.read_text()):
        looked = study_folder.tuner(*shlex.split(line, comments=True))
        assert looked.code == 0, looked.text


def test_result_of_the_quickstart_is_read_in_python(study_folder: StudyFolder) -> None:
    page = REPOSITORY / "docs" / "quickstart.md"
    for text, name in _NAMED.findall(page.read_text()):
        study_folder.write(name, text)
    study_folder.tune("--trials", "1", "--set", "devices=cpu:1")
    ended = study_folder.python("result.py")
    assert ended.code == 0, ended.text
    assert "lr" in ended.out
