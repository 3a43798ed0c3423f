"""Fixtures for the tests of the dashboard's pages."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.databases import new_database
from tests.integration.app.pages import show_database
from tests.integration.app.paused_study import PausedStudy, run_paused_study


@pytest.fixture(autouse=True)
def main_module_is_kept() -> Iterator[None]:
    """Puts pytest's own `__main__` back.

    Streamlit's AppTest leaves the page's script there. `multiprocessing` runs the file of
    `__main__` again in each process that it starts, so that a later test of this worker would
    start the dashboard in its processes.
    """
    main = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = main


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of a database with all tables and no rows, which the pages show."""
    url = new_database(tmp_path)
    show_database(monkeypatch, url)
    return url


@pytest.fixture(scope="session")
def paused_study(tmp_path_factory: pytest.TempPathFactory) -> PausedStudy:
    """Is read, never written."""
    return run_paused_study(tmp_path_factory.mktemp("paused"))
