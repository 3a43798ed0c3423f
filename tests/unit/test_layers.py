"""A module imports only from lower layers, and the dispatching process never imports torch."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: From the lowest to the highest. A name covers everything below it that has no own entry.
LAYERS = (
    (
        "tuner.errors",
        "tuner.shadow",
        "search_spaces",
        "tuner.formats",
        "tuner.schedule",
        "tuner.clock",
        "tuner.processes",
        "tuner.budget",
        "tuner.dispatch.foresight",
        "tuner.retention",
        "tuner.checkpoint_files",
    ),
    ("tuner.saved_states",),
    ("tuner.attempt", "tuner.template", "tuner.files", "tuner.dispatch.terms"),
    ("tuner.trial_folders",),
    ("tuner.study_folder", "tuner.state_copies", "tuner.dispatch.retries", "tuner.dispatch.streak"),
    ("tuner.messages",),
    ("tuner.devices", "tuner.provenance"),
    ("tuner.idle",),
    ("tuner.dispatch.idle_log", "tuner.dispatch.sampling"),
    ("tuner.config",),
    ("tuner.store",),
    ("tuner.search",),
    ("tuner.launch",),
    ("tuner.dispatch.notices", "tuner.dispatch.grants"),
    ("tuner.dispatch.gpu_memory", "tuner.dispatch.live"),
    (
        "tuner.dispatch.activity",
        "tuner.dispatch.stalls",
        "tuner.dispatch.usage",
        "tuner.dispatch.room",
        "tuner.dispatch.closing",
    ),
    (
        "tuner.dispatch.leasing",
        "tuner.dispatch.orders",
        "tuner.dispatch.others",
        "tuner.dispatch.outage",
        "tuner.dispatch.rescue",
        "tuner.dispatch.housekeeping",
        "tuner.dispatch.saving",
        "tuner.dispatch.nothing_left",
    ),
    (
        "tuner.dispatch.moves",
        "tuner.dispatch.device_changes",
        "tuner.dispatch.settling",
        "tuner.dispatch.launching",
    ),
    ("tuner.dispatch.talk",),
    ("tuner.dispatch.stopping",),
    ("tuner.dispatch.widening",),
    ("tuner.dispatch.snapshot",),
    ("tuner.view",),
    ("tuner.dispatch.dispatcher", "tuner.dispatch"),
    ("tuner.configurations", "tuner.prepare", "tuner.verbs"),
    ("tuner.dashboard", "tuner.earlier_studies", "tuner.simulate"),
    ("tuner.start",),
    ("tuner.workplace",),
    ("tuner.confirmation",),
    ("tuner.assembly",),
    ("tuner.reports", "tuner.cli.edge"),
    ("tuner.cli.db", "tuner.cli.studies"),
    (
        "tuner.cli.control",
        "tuner.cli.dashboard",
        "tuner.cli.report",
        "tuner.cli.schedule",
        "tuner.cli.simulate",
    ),
    ("tuner.cli.main", "tuner.cli"),
    ("tuner.run", "tuner.best"),
    ("trials",),
    ("app.data", "app.library", "app.assets", "app"),
    ("app.charts",),
    ("app.views",),
    ("app.main",),
    ("app.server", "app.report"),
)
#: Imports that go up on purpose, with the reason.
ALLOWED = {
    ("tuner", "tuner.configurations"): "the package's public names, imported on first use",
    ("tuner", "tuner.schedule"): "the package's public names, imported on first use",
    ("tuner.configurations", "trials.checkpoints"): "imported late, by who loads a state",
    ("tuner.cli.report", "app.report"): "imported late: a report has the dashboard's figures",
    ("tuner.start", "tuner.assembly"): "imported late, while the fork server imports torch",
}


def level(module: str) -> int | None:
    found = [
        (len(name), index)
        for index, names in enumerate(LAYERS)
        for name in names
        if module == name or module.startswith(f"{name}.")
    ]
    return max(found)[1] if found else None


def modules() -> Iterator[tuple[str, Path]]:
    for package in ("tuner", "search_spaces", "trials", "app"):
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(part for part in parts if part != "__init__"), path


@functools.cache
def _imports(path: Path) -> list[ast.Import | ast.ImportFrom]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]


def imported(path: Path, package_names: set[str]) -> Iterator[str]:
    for node in _imports(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in package_names else node.module


def test_modules_import_only_from_lower_layers() -> None:
    names = {name for name, _ in modules()}
    wrong = [
        f"{name} imports {target}"
        for name, path in modules()
        for target in imported(path, names)
        if (to := level(target)) is not None
        and (name, target) not in ALLOWED
        and (at := level(name)) is not None
        and to > at
    ]
    assert wrong == []


def test_every_module_has_a_layer() -> None:
    without = [name for name, _ in modules() if level(name) is None]
    assert without == ["tuner"]


def test_adapters_of_devices_do_not_import_each_other() -> None:
    adapters = {"tuner.devices.nvml", "tuner.devices.cpu"}
    names = {name for name, _ in modules()}
    for name, path in modules():
        if name in adapters:
            assert not adapters.difference({name}).intersection(imported(path, names))


def test_search_spaces_imports_optuna_only() -> None:
    outside = {
        target.partition(".")[0]
        for name, path in modules()
        if name.partition(".")[0] == "search_spaces"
        for target in imported(path, set())
    }
    assert outside - sys.stdlib_module_names == {"search_spaces", "optuna", "yaml"}


def test_pages_alone_know_streamlit_and_figures_alone_plotly() -> None:
    outside = {
        (".".join(name.split(".")[:2]), target.partition(".")[0])
        for name, path in modules()
        for target in imported(path, set())
    }
    knowing = {each for each in outside if each[1] in ("streamlit", "plotly")}
    assert knowing == {
        ("app.charts", "plotly"),
        ("tuner.simulate", "plotly"),
        ("app.views", "streamlit"),
        ("app.main", "streamlit"),
        ("app.server", "streamlit"),
        ("app.assets", "streamlit"),
        ("app.library", "plotly"),
    }


@pytest.mark.parametrize(
    "module", ["tuner.assembly", "tuner.reports", "trials.function_worker", "trials"]
)
def test_nothing_but_training_code_imports_torch(module: str) -> None:
    code = f"import {module}, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.parametrize("module", ["tuner.assembly", "tuner.cli.main"])
def test_who_has_no_gpu_does_not_wait_for_their_driver_s_names(module: str) -> None:
    code = f"import {module}, sys; sys.exit('pynvml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
