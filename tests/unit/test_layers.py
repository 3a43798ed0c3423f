"""A module imports only from lower layers, and the dispatching process never imports torch."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: Folders, from the lowest line to the highest. A module imports from its own line and from those
#: above it here; what stands in a folder's subfolders is on the folder's line.
LAYERS = """
tuner.search_spaces
tuner.errors tuner.domain
tuner.host
tuner.checkpoints
tuner.devices
tuner.config
tuner.shares tuner.queue
tuner.store
tuner.launch
tuner.search
tuner.dispatch
tuner.queries
tuner.trials
tuner.frameworks
tuner.actions
tuner.terminal
tuner.monitoring tuner.tracking
tuner.engines
tuner.compose
tuner.simulate
tuner.app.data tuner.app.library tuner.app.assets tuner.app.control_session
tuner.app.charts
tuner.app.views
tuner.app
tuner.api
tuner.cli
tuner.run tuner.best
"""
#: Imports that go up on purpose, with the reason.
ALLOWED = {
    ("tuner", "tuner.queries.results.best"): "the package's public names, imported on first use",
    (
        "tuner",
        "tuner.queries.results.schedule",
    ): "the package's public names, imported on first use",
    ("tuner", "tuner.api.start"): "the package's public names, imported on first use",
    ("tuner", "tuner.api.study"): "the package's public names, imported on first use",
    ("tuner", "tuner.trials.ddp"): "the package's public names, imported on first use",
    ("tuner", "tuner.trials.context"): "the package's public names, imported on first use",
    ("tuner", "tuner.trials.current_trial"): "the package's public names, imported on first use",
    ("tuner", "tuner.trials.params"): "the package's public names, imported on first use",
    (
        "tuner.queries.results.best",
        "tuner.trials.checkpoints",
    ): "only to load a state",
}


#: Folders of the top level that are subpackages of `tuner`, by a symbolic link.
PARTS = ("search_spaces", "trials", "app")


def level(module: str) -> int | None:
    found = [
        (len(name), index)
        for index, line in enumerate(LAYERS.strip().splitlines())
        for name in line.split()
        if module == name or module.startswith(f"{name}.")
    ]
    return max(found)[1] if found else None


def modules() -> Iterator[tuple[str, Path]]:
    for package in ("tuner", *PARTS):
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            if package in PARTS:
                parts = ("tuner", *parts)
            elif parts[1] in PARTS:
                continue
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
    adapters = {"tuner.devices.nvidia.probe", "tuner.devices.cpu_slots.probe"}
    names = {name for name, _ in modules()}
    for name, path in modules():
        if name in adapters:
            assert not adapters.difference({name}).intersection(imported(path, names))


def test_one_module_alone_names_the_launcher_of_this_host() -> None:
    launcher = "tuner.launch.local_host.launcher"
    names = {name for name, _ in modules()}
    assert launcher in names
    naming = [name for name, path in modules() if launcher in imported(path, names)]
    assert naming == ["tuner.compose.start"]


def test_folders_and_files_are_small() -> None:
    paths = [*(path for _, path in modules()), *(ROOT / "benchmarks").rglob("*.py")]
    files = [path for path in paths if path.name != "__init__.py"]
    folders = Counter(path.parent.relative_to(ROOT).as_posix() for path in files)
    assert len(folders) > 40
    assert {name: n for name, n in folders.items() if n > 15} == {}
    lines = {path.relative_to(ROOT).as_posix(): path.read_text().count("\n") for path in files}
    assert {name: n for name, n in lines.items() if n > 450} == {}


def test_search_spaces_imports_optuna_only() -> None:
    outside = {
        target.partition(".")[0]
        for name, path in modules()
        if name.startswith("tuner.search_spaces")
        for target in imported(path, set())
    }
    assert outside - sys.stdlib_module_names == {"tuner", "optuna", "yaml"}


def test_private_names_of_optuna_are_imported_in_one_place() -> None:
    names = {name for name, _ in modules()}
    private = {
        name
        for name, path in modules()
        for node in _imports(path)
        for target in _names_of(node)
        if target.startswith("optuna.") and re.search(r"\._(?!_)", target)
    }
    places = {"tuner.store.optuna_compat", "tuner.store.optuna_tables.statements"}
    assert places <= names
    assert private == places


def _names_of(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [f"{node.module}.{alias.name}" for alias in node.names]


def test_pages_alone_know_streamlit_and_figures_alone_plotly() -> None:
    outside = {
        (re.sub(r"^(tuner(?:\.app)?\.\w+).*", r"\1", name), target.partition(".")[0])
        for name, path in modules()
        for target in imported(path, set())
    }
    knowing = {each for each in outside if each[1] in ("streamlit", "plotly")}
    assert knowing == {
        ("tuner.app.charts", "plotly"),
        ("tuner.simulate", "plotly"),
        ("tuner.app.views", "streamlit"),
        ("tuner.app.main", "streamlit"),
        ("tuner.app.server", "streamlit"),
        ("tuner.app.assets", "streamlit"),
        ("tuner.app.late_refresh", "streamlit"),
        ("tuner.app.library", "plotly"),
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "module",
    [
        "tuner.compose.wiring",
        "tuner.compose.run_report",
        "tuner.trials.worker.function_worker",
        "tuner.trials",
    ],
)
def test_nothing_but_training_code_imports_torch(module: str) -> None:
    code = f"import {module}, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("module", ["tuner.compose.wiring", "tuner.cli.main"])
def test_who_has_no_gpu_does_not_wait_for_their_driver_s_names(module: str) -> None:
    code = f"import {module}, sys; sys.exit('pynvml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.slow
def test_a_command_that_looks_does_not_wait_for_what_dispatches() -> None:
    code = (
        "import tuner.cli.main, sys;"
        "sys.exit(', '.join({'tuner.dispatch', 'tuner.compose.start'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_a_command_s_process_imports_neither_optuna_nor_numpy() -> None:
    """They are two thirds of what the fork server of a study of commands would import."""
    code = (
        "import tuner.launch.local_host.entry as entry, importlib, sys;"
        "importlib.import_module(entry.COMMAND_WORKER);"
        "sys.exit(', '.join({'optuna', 'numpy', 'torch'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_private_attributes_of_optuna_are_read_in_one_place() -> None:
    compat = "tuner.store.optuna_compat"
    texts = {name: path.read_text() for name, path in modules()}
    private = {name for _, name in private_attributes(texts.pop(compat))}
    assert {"_trial_id", "_storage", "_min_resource", "_n_startup_trials"} <= private
    # Most modules have none of them, and need not be parsed.
    named = re.compile(rf"\.\s*({'|'.join(map(re.escape, private))})\b")
    elsewhere = {
        f"{module} reads {value}.{name}"
        for module, text in texts.items()
        if named.search(text)
        for value, name in private_attributes(text)
        if name in private
    }
    # Of a class of the tuner.
    assert elsewhere == {"tuner.store.optuna_tables.curves.lazy_curve reads curve._trial_id"}


def private_attributes(text: str) -> Iterator[tuple[str, str]]:
    """Attributes with an underscore of anything but `self`: the object's text, and the name."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Attribute) or not re.match(r"_[a-z]", node.attr):
            continue
        if (value := ast.unparse(node.value)) not in ("self", "cls"):
            yield value, node.attr
