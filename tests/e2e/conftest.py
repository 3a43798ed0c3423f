"""A user's folder for each test; everything is done by the real commands in processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.browser import browser, page
from tests.e2e.study_folder import StudyFolder
from tests.nvml_stub import NvmlStub, nvml_stub, nvml_stub_library

__all__ = ["browser", "nvml_stub", "nvml_stub_library", "page"]

FORECAST = '''
"""A user's own module."""

def train(trial):
    print("training", trial.number)
    return (trial.params["x"] - 0.3) ** 2
'''


@pytest.fixture
def study_folder(tmp_path: Path) -> Iterator[StudyFolder]:
    """A folder with a module `forecast` whose `train` returns (x - 0.3)^2 at once."""
    path = tmp_path / "user"
    path.mkdir()
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    folder = StudyFolder(path=path, env={"TMPDIR": str(temporary)})
    folder.write("forecast.py", FORECAST)
    yield folder
    folder.end_all()


@pytest.fixture
def gpu_folder(study_folder: StudyFolder, nvml_stub: NvmlStub) -> StudyFolder:
    """The same on a machine whose GPUs are those of `nvml_stub`; it has none at first."""
    study_folder.env |= nvml_stub.env
    return study_folder
