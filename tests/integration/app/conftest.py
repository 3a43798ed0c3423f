"""Fixtures for the tests of the dashboard's pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.databases import new_database
from tests.integration.app.pages import show_database
from tests.integration.app.paused_study import PausedStudy, run_paused_study
from tests.shared_caches import look_for_components_once

look_for_components_once()


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
