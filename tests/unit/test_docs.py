"""The README says what is true: its study file loads, and no outcome, state or key is left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

import tuner
from tuner.attempt import AttemptState, Outcome
from tuner.cli.main import app
from tuner.config import StudyConfig, load_study_file
from tuner.results.formats import Format

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def study_file_of_readme() -> str:
    blocks = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    return next(block for block in blocks if block.startswith("study:"))


def test_study_file_of_the_readme_loads(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(study_file_of_readme())
    config = load_study_file(file, environ={})
    assert config.study == "digits-mlp"
    assert config.budget.device_hours == 2


def test_study_file_of_the_readme_shows_every_key() -> None:
    assert set(yaml.safe_load(study_file_of_readme())) == set(StudyConfig.yaml_keys())


@pytest.mark.parametrize("outcome", Outcome)
def test_outcome_is_in_the_glossary(outcome: Outcome) -> None:
    assert re.search(rf"\| outcome \|.*\b{outcome.value}\b", README)


@pytest.mark.parametrize("state", AttemptState)
def test_state_is_in_the_readme(state: AttemptState) -> None:
    assert re.search(rf"\b{state.value}\b", README)


@pytest.mark.parametrize("command", get_command(app).commands)  # type: ignore[attr-defined]
def test_command_is_in_the_readme(command: str) -> None:
    assert re.search(rf"tuner[ .]{command}\b", README)


def test_formats_are_in_the_readme() -> None:
    assert all(form.value in README for form in Format)


def test_links_lead_somewhere() -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", README)
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_public_names_are_fixed() -> None:
    assert tuner.__all__ == [
        "BestConfiguration",
        "Schedule",
        "load_best",
        "load_schedule",
        "load_top",
    ]
    assert all(getattr(tuner, name) for name in tuner.__all__)
