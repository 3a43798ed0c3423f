"""The page Best and `tuner best` print the same of a study that the tuner has run."""

from __future__ import annotations

import pytest

from tests.integration.app.pages import opened, show_database
from tests.integration.app.paused_study import PausedStudy
from tuner.queries.results.best import load_top
from tuner.queries.results.format_names import Format
from tuner.queries.results.formats import render


def test_best_configurations_are_those_of_the_command(
    paused_study: PausedStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{paused_study.end}"
    show_database(monkeypatch, url)
    found = load_top(url, n=3)
    # Only one that the tuner has run has these.
    assert found[0].checkpoint is not None
    assert found[0].command is not None
    page = opened("best", n="3")
    assert page.code[0].value == render(found, Format.YAML)
    assert page.code[1].value == render(found, Format.JSON)
