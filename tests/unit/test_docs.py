"""README and docs are true: study files load, code parses, no key, command or state is left out."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from tests.unit.test_layers import LAYERS
from tuner.cli.main import app
from tuner.config import StudyConfig, load_study_file
from tuner.config.notation.command_template import BUILTINS
from tuner.config.notation.metric_pattern import expand
from tuner.domain.attempt import TRANSITIONS, AttemptState, Outcome
from tuner.errors import (
    EXIT_BAD_INPUT,
    EXIT_BUDGET_REACHED,
    EXIT_COME_BACK,
    EXIT_INTERRUPTED,
    EXIT_STUDY_FAILED,
)
from tuner.queries.results.format_names import Format
from tuner.queries.study_state import Standing

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
#: Logs of measurements and choices; they show no blocks to paste.
RECORDS = {"benchmarks.md", "decisions.md", "reliability.md"}
PAGES = [README, *sorted(page for page in DOCS.glob("*.md"))]
GUIDES = [page for page in PAGES if page.name not in RECORDS]
GUIDE_TEXT = "\n".join(page.read_text() for page in GUIDES)
MOST_LINES_OF_README = 150


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def all_blocks(language: str) -> list[object]:
    return [
        pytest.param(block, id=f"{page.stem}-{number}")
        for page in GUIDES
        for number, block in enumerate(blocks(page, language))
    ]


def study_file_with_all_keys() -> str:
    return next(each for each in blocks(DOCS / "your-program.md", "yaml") if "study:" in each)


def load(text: str, folder: Path) -> StudyConfig:
    file = folder / "study.yaml"
    file.write_text(text)
    return load_study_file(file, environ={"DB_PASSWORD": "secret"})


def test_readme_is_one_page() -> None:
    assert len(README.read_text().splitlines()) <= MOST_LINES_OF_README


def test_study_file_of_the_readme_has_eight_keys(tmp_path: Path) -> None:
    (block,) = [each for each in blocks(README, "yaml") if "study:" in each]
    assert len(yaml.safe_load(block)) == 8
    assert load(block, tmp_path).budget.trials == 64


def test_study_file_with_all_keys_loads(tmp_path: Path) -> None:
    config = load(study_file_with_all_keys(), tmp_path)
    assert config.study == "digits-mlp"
    assert config.budget.device_hours == 2


def test_study_file_with_all_keys_shows_every_key() -> None:
    assert set(yaml.safe_load(study_file_with_all_keys())) == set(StudyConfig.yaml_keys())


@pytest.mark.parametrize("block", all_blocks("yaml"))
def test_yaml_is_a_study_file_or_a_part_of_one(block: str, tmp_path: Path) -> None:
    space = {"lr": {"type": "float", "low": 1e-4, "high": 0.1, "log": True}, "width": 64}
    base = {"study": "part", "trial": {"function": "train:main"}, "search_space": space}
    part = yaml.safe_load(block)
    metrics = part.get("trial", {}).get("metrics", {}).get("pattern", "")
    if "study" not in part and (names := re.findall(r"\?P<(?!step)(\w+)>", expand(metrics))):
        part["objectives"] = {names[0]: "minimize"}
    load(yaml.safe_dump({**base, **part}, sort_keys=False), tmp_path)


@pytest.mark.parametrize("block", all_blocks("python"))
def test_python_parses(block: str) -> None:
    ast.parse(block)


def test_places_of_commands_are_in_the_table() -> None:
    text = (DOCS / "your-program.md").read_text()
    rows = dict(re.findall(r"^\| `\{(\w+)\}` \| (.*) \|$", text, re.MULTILINE))
    assert rows == BUILTINS


@pytest.mark.parametrize("outcome", Outcome)
def test_outcome_is_in_the_glossary(outcome: Outcome) -> None:
    glossary = (DOCS / "glossary.md").read_text()
    assert re.search(rf"\| outcome \|.*\b{outcome.value}\b", glossary)


@pytest.mark.parametrize("state", AttemptState)
def test_state_is_explained(state: AttemptState) -> None:
    assert f"| `{state.value}` |" in (DOCS / "architecture.md").read_text()


def test_drawn_moves_of_an_attempt_are_those_of_the_code() -> None:
    drawing = next(each for each in blocks(DOCS / "architecture.md", "mermaid") if "leased" in each)
    drawn = set(re.findall(r"^ +(\w+) --> (\w+)$", drawing, re.MULTILINE))
    moves = {(old.value, new.value) for old, to in TRANSITIONS.items() for new in to}
    assert drawn == moves


def test_every_room_is_in_the_architecture() -> None:
    text = (DOCS / "architecture.md").read_text()
    rooms = {page.parent.relative_to(ROOT).as_posix() for page in ROOT.glob("tuner/*/__init__.py")}
    assert [room for room in sorted(rooms) if f"`{room}/`" not in text] == []


def test_rooms_are_in_the_order_of_the_layers() -> None:
    text = (DOCS / "architecture.md").read_text()
    names = [name for name in LAYERS.split() if (ROOT / name.replace(".", "/")).is_dir()]
    places = [text.find(f"| `{name.replace('.', '/')}/` |") for name in names]
    shown = [place for place in places if place >= 0]
    assert shown == sorted(shown)


def test_paths_in_the_architecture_exist() -> None:
    text = (DOCS / "architecture.md").read_text()
    paths = set(re.findall(r"\b(?:tuner|trials|app|tests|search_spaces)/[\w/]*(?:\.py)?", text))
    assert len(paths) > 25
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []


def test_drawn_layers_are_those_of_the_table() -> None:
    page = DOCS / "architecture.md"
    drawing = next(each for each in blocks(page, "mermaid") if "spaces:" in each)
    drawn = re.findall(r'\["([\w ]+): ([^"]+)"\]', drawing)
    rows = re.findall(r"^\| ([\w ]*?) ?\| `([\w/*.]+)` \|", page.read_text(), re.MULTILINE)
    layers: dict[str, list[str]] = {}
    name = ""
    for cell, folder in rows[: rows.index(("command line", "tuner/cli/")) + 1]:
        name = cell or name
        layers.setdefault(name, []).append(folder)
    assert drawn == [(layer, ", ".join(folders)) for layer, folders in reversed(layers.items())]


@pytest.mark.parametrize("command", get_command(app).commands)  # type: ignore[attr-defined]
def test_command_is_in_the_guides(command: str) -> None:
    assert re.search(rf"`tuner {command}\b", (DOCS / "operations.md").read_text())


PASTED = sorted(
    {
        line.strip()
        for page in GUIDES
        for block in blocks(page, "sh")
        for line in block.splitlines()
        if re.match(r"tuner |python -m tuner\.run ", line)
    }
)


@pytest.mark.parametrize("line", PASTED)
def test_command_line_to_paste_has_known_options(line: str) -> None:
    words = shlex.split(line.replace("python -m tuner.run", "tuner run"), comments=True)
    command: Any = get_command(app).commands[words[1]]  # type: ignore[attr-defined]
    if hasattr(command, "commands") and words[2:]:
        command = command.commands[words[2]]
    known = {option for each in command.params for option in each.opts}
    # What follows `--` is the program's.
    own = words[2 : words.index("--")] if "--" in words else words[2:]
    assert [word for word in own if word.startswith("-") and word not in known] == []


def test_exit_codes_are_in_the_guides() -> None:
    operations = (DOCS / "operations.md").read_text()
    codes = (
        EXIT_BUDGET_REACHED,
        EXIT_STUDY_FAILED,
        EXIT_BAD_INPUT,
        EXIT_COME_BACK,
        EXIT_INTERRUPTED,
    )
    assert [code for code in codes if f"\n| {code} |" not in operations] == []
    monitoring = (DOCS / "monitoring.md").read_text()
    assert [each for each in Standing if f"\n| {each.exit_code} |" not in monitoring] == []


def test_formats_are_in_the_guides() -> None:
    assert all(form.value in GUIDE_TEXT for form in Format)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)\)", page.read_text())
    local = [each for each in targets if "://" not in each]
    assert [each for each in local if not (page.parent / each).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_headings_lead_somewhere(page: Path) -> None:
    for name, heading in re.findall(r"\]\(([^)#\s]*)#([^)]+)\)", page.read_text()):
        target = page.parent / name if name else page
        headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
        assert heading in {slug(each) for each in headings}, f"{name}#{heading}"


def slug(heading: str) -> str:
    """The anchor of a heading on GitHub and in MkDocs."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


def test_every_guide_is_linked_from_the_first_page() -> None:
    index = (DOCS / "index.md").read_text()
    names = {page.name for page in PAGES if page not in (README, DOCS / "index.md")}
    assert [name for name in sorted(names) if f"]({name})" not in index] == []


def test_paths_in_contributing_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    paths = re.findall(r"`((?:tuner|trials|app|tests|docs|search_spaces)/[\w./]*)`", text)
    paths += re.findall(r"\]\(([^)#]+)", text)
    assert len(paths) > 40
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("tuner/search/pruners/registry.py", "_OURS"),
        ("tuner/search/schedulers.py", "_FACTORIES"),
        ("tuner/search/scheduler.py", "class Scheduler("),
        ("tuner/launch/protocols.py", "class Launcher("),
        ("tuner/compose/start.py", "def open_launcher("),
        ("app/main.py", "_PAGES"),
        ("tests/integration/app/test_pages.py", "PAGES"),
        ("tuner/config/study.py", "class StudyConfig("),
    ],
)
def test_names_in_contributing_are_in_their_files(path: str, name: str) -> None:
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    assert path in contributing
    assert name.removeprefix("class ").removeprefix("def ").strip("(") in contributing
    assert name in (ROOT / path).read_text()


def test_every_decision_is_in_the_index_once() -> None:
    text = (DOCS / "decisions.md").read_text()
    entries = re.findall(r"^## (\d{4}-\d\d-\d\d) (.+)$", text, re.MULTILINE)
    linked = re.findall(r"^- \[(.+)\]\(#(\d{4}-\d\d-\d\d)-", text, re.MULTILINE)
    assert sorted(linked) == sorted((title, date) for date, title in entries)
