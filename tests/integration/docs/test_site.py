"""The documentation as a site: it builds strictly, and shows nothing that is on another host."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.docs_site import DOCS, ROOT, build, site

__all__ = ["site"]

MISTAKES = """
[a page](no-such-page.md), [a heading](operations.md#no-such-heading),
![a picture](images/no-such-picture.png)
"""
#: What a browser loads by itself while it shows a page.
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "srcset", "link": "href"}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The sources of the site, to be changed."""
    shutil.copytree(DOCS, tmp_path / "docs", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    return tmp_path


def test_menu_has_every_page_once() -> None:
    menu = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    assert sorted(re.findall(r": ([\w-]+\.md)$", menu, re.MULTILINE)) == sorted(
        page.name for page in DOCS.glob("*.md")
    )


def test_every_page_is_built(site: Path) -> None:
    assert {page.stem for page in DOCS.glob("*.md")} <= {page.stem for page in site.glob("*.html")}


def test_each_mistake_fails_the_build(copy: Path) -> None:
    page = copy / "docs" / "glossary.md"
    page.write_text(f"{page.read_text()}\n{MISTAKES}")
    (copy / "docs" / "forgotten.md").write_text("# Forgotten\n")
    built = build(copy, copy / "site")
    assert built.returncode != 0
    warnings = [line for line in built.stdout.splitlines() if "WARNING" in line]
    for word in ("no-such-page", "no-such-heading", "no-such-picture"):
        assert any(word in line for line in warnings), built.stdout
    assert "forgotten.md" in built.stdout
    assert "Aborted with 4 warnings" in built.stdout


def test_links_out_of_the_pages_are_names(site: Path) -> None:
    assert "](../examples/population)" in (DOCS / "benchmarks.md").read_text()
    assert "<code>examples/population</code>" in (site / "benchmarks.html").read_text()


def test_pages_load_nothing_from_another_host(site: Path) -> None:
    loaded = {(page.name, address) for page in site.rglob("*.html") for address in loaded_by(page)}
    assert ("architecture.html", "assets/mermaid.tiny.js") in loaded
    assert {each for each in loaded if is_outside(each[1])} == set()


def test_styles_load_nothing_from_another_host(site: Path) -> None:
    styles = list(site.rglob("*.css"))
    assert len(styles) >= 3
    addresses = {
        address.strip("'\"")
        for style in styles
        for address in re.findall(r"url\(([^)]*)\)|@import\s+([^;]+)", style.read_text())
        for address in address
    }
    assert {each for each in addresses if is_outside(each)} == set()


def test_theme_s_script_names_no_server_of_scripts(site: Path) -> None:
    (bundle,) = (site / "assets" / "javascripts").glob("bundle.*.js")
    assert "unpkg.com" not in bundle.read_text()


def test_only_pages_with_a_diagram_load_mermaid(site: Path) -> None:
    loading = {
        page.stem for page in site.glob("*.html") if "assets/mermaid.tiny.js" in loaded_by(page)
    }
    drawn = {page.stem for page in DOCS.glob("*.md") if "\n```mermaid\n" in page.read_text()}
    assert loading == drawn
    assert drawn


def is_outside(address: str) -> bool:
    return bool(re.match(r"(https?:)?//", address))


def loaded_by(page: Path) -> set[str]:
    parser = _Addresses()
    parser.feed(page.read_text())
    return parser.found


class _Addresses(HTMLParser):
    """Collects the addresses that a browser opens without a click."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if LOADED.get(tag) == name and value:
                self.found.update(_parts(value))


def _parts(value: str) -> Iterator[str]:
    yield from (part.split()[0] for part in value.split(",") if part.strip())
