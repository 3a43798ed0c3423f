"""Generated pages are up to date, and hold every public name, command and option."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
from typer.main import get_command

from docs.generate.__main__ import pages
from docs.generate.training_api import PACKAGES
from tests.docs_site import DOCS
from tuner import trials
from tuner.cli.main import app

PAGES = pages()


@pytest.mark.parametrize("name", PAGES)
def test_page_is_up_to_date(name: str) -> None:
    assert (DOCS / name).read_text() == PAGES[name], "The page is out of date: make pages"


#: Imports of ten seconds. By day: `test_page_is_up_to_date`, which reads their sources.
HEAVY = ("keras", "lightning", "transformers", "accelerate")
BY_COST = [
    pytest.param(name, marks=[pytest.mark.nightly] * name.endswith(HEAVY)) for name in PACKAGES
]


@pytest.mark.parametrize("package", BY_COST)
def test_every_public_name_has_a_section(package: str) -> None:
    page = PAGES["training-api.md"]
    section = page.partition(f"\n## {PACKAGES[package]}\n")[2].partition("\n## ")[0]
    module = import_module(package)
    # The names of `tuner.trials` are in `tuner` too, and have one section.
    elsewhere = {"ddp", *trials.__all__} if package == "tuner" else set()
    names = [name for name in module.__all__ if name not in elsewhere]
    assert re.findall(r"^### (.*)$", section, re.MULTILINE) == names
    for name in names:
        value = getattr(module, name)
        if isinstance(value, type):
            assert [each for each in _members(value) if not _is_shown(name, each, section)] == []


def test_every_public_name_is_explained() -> None:
    page = PAGES["training-api.md"]
    assert re.findall(r"^\| `.*\|  \|$", page, re.MULTILINE) == []
    assert re.findall(r"```\n\n\n", page) == []


def test_every_command_has_a_section_with_its_parameters() -> None:
    page = PAGES["command-line.md"]
    commands = dict(_commands(get_command(app), "tuner"))
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == sorted(commands)
    for path, command in commands.items():
        section = page.partition(f"\n## {path}\n")[2].partition("\n## ")[0]
        shown = set(re.findall(r"^- `([^`]*)`", section, re.MULTILINE))
        options = {
            each for name in shown for each in re.findall(r"(?<![\w-])--?[a-z][a-z-]*", name)
        }
        assert options == {
            word for each in command.params for word in each.opts if word.startswith("-")
        }
        assert len(shown) == len(command.params)


def test_every_parameter_is_explained() -> None:
    lines = re.findall(r"^- `.*$", PAGES["command-line.md"], re.MULTILINE)
    assert len(lines) > 100
    assert [line for line in lines if not re.search(r": \S.*[^ \]]$", line)] == []


def _members(value: type) -> list[str]:
    """What a class of ours adds to its bases."""
    return [name for name in vars(value) if not name.startswith("_")]


def _is_shown(owner: str, name: str, section: str) -> bool:
    return f"#### {owner}.{name}\n" in section or f"| `{name}` |" in section


def _commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, each in command.commands.items():
        yield from _commands(each, f"{path} {name}")
