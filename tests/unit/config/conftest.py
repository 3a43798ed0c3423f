"""A folder with a study file in it, named as a user names it: `study.yaml`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tuner.config import StudyConfig
from tuner.config.study_file import load_study_file
from tuner.errors import ConfigError

Load = Callable[..., StudyConfig]
Message = Callable[..., str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def load(folder: Path) -> Load:
    def load(text: str, **arguments: object) -> StudyConfig:
        (folder / "study.yaml").write_text(text)
        return load_study_file(Path("study.yaml"), **{"environ": {}, **arguments})

    return load


@pytest.fixture
def message(load: Load) -> Message:
    def message(text: str, **arguments: object) -> str:
        with pytest.raises(ConfigError) as caught:
            load(text, **arguments)
        return str(caught.value)

    return message
