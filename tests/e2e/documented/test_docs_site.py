"""The documentation in a browser, opened as files: diagrams and search without a network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.docs_site import DOCS, site
from tests.e2e.browser import errors_of

if TYPE_CHECKING:
    from playwright.sync_api import Page
import pytest

pytestmark = pytest.mark.programs

__all__ = ["site"]


def test_diagrams_are_drawn_and_the_search_answers(page: Page, site: Path) -> None:
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    errors = errors_of(page)
    page.goto((site / "architecture.html").as_uri())
    n_diagrams = (DOCS / "architecture.md").read_text().count("```mermaid\n")
    # One that could not be drawn stays a `pre`.
    page.wait_for_function(
        "n => document.querySelectorAll('div.mermaid').length === n", arg=n_diagrams
    )
    page.fill("input.md-search__input", "quarantine")
    page.locator('.md-search-result__link[href*="operations.html"]').first.wait_for()
    assert errors == []
    assert [each for each in requested if not each.startswith("file:")] == []
