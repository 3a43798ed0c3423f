"""The wheel, installed by pip in an environment of its own, outside of a checkout.

By night pip installs what the wheel and its extras need as well: hundreds of megabytes. By day the
environment reads these packages where they are.

A user's project has modules named like folders of this repository: they are the user's. The same
project is tuned from a checkout as well.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from tests.e2e.study_folder import REPOSITORY, StudyFolder, wait_until
from tuner.app.library import LIBRARY_PATH
from tuner.errors import EXIT_BUDGET_REACHED
from tuner.host.distribution import DISTRIBUTION

pytestmark = pytest.mark.programs

#: What a wheel is built from.
_SOURCES = (
    *("tuner", "trials", "search_spaces", "app", "docs"),
    *("pyproject.toml", "README.md", "LICENSE", "mkdocs.yml"),
)
_EXTRAS = "dashboard,docs,examples,login,metrics,mysql,postgresql,samplers"
#: Hundreds of megabytes are installed.
_INSTALL_TIMEOUT_S = 900
#: In this page's commands, where the package comes from.
_URL = "git+<URL of this repository>"
_NEWCOMERS_PAGE = REPOSITORY / "docs" / "tune-a-script.md"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_MODULES = {
    "trials/__init__.py": "",
    "trials/mine.py": """
import app
import search_spaces
from tuner import current, ddp


def train(trial):
    trial.report(search_spaces.SCALE * trial.params["x"], step=1)
    return app.offset() + search_spaces.SCALE * trial.params["x"]
""",
    "app.py": "def offset():\n    return 1.0\n",
    "search_spaces.py": "SCALE = 2.0\n",
}


def write_project(folder: StudyFolder) -> None:
    for name, text in _MODULES.items():
        folder.write(name, text)
    folder.study(trial={"function": "trials.mine:train"}, budget={"trials": 3})


def check_values(folder: StudyFolder) -> None:
    rows = folder.rows(
        "select p.param_value, v.value from trial_params p "
        "join trial_values v on v.trial_id = p.trial_id"
    )
    assert len(rows) == 3
    assert [value for _, value in rows] == [pytest.approx(1 + 2 * x) for x, _ in rows]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that nothing of an earlier build is in it."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in _SOURCES:
        source = REPOSITORY / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, folder / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(source, folder / name)
    _pip(Path(sys.executable), "wheel", "--no-deps", "--wheel-dir", str(folder / "dist"), folder)
    return next((folder / "dist").glob("*.whl"))


@pytest.fixture(scope="module", params=["linked", pytest.param("alone", marks=pytest.mark.nightly)])
def environment(
    request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """The `bin` folder of an environment with the wheel and what it needs."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    versions = REPOSITORY / "requirements.lock"
    python = folder / "bin" / "python"
    # Modules are compiled when they are imported: most never are.
    install = ("install", "--no-compile")
    if request.param == "linked":
        _pip(python, *install, "--no-deps", wheel)
        _link_packages(folder)
    else:
        _pip(python, *install, "--constraint", versions, f"{wheel}[{_EXTRAS}]")
    yield folder / "bin"
    # Too large to stay until pytest removes old folders, and slow to remove.
    subprocess.run(["sh", "-c", 'rm -rf "$1" &', "sh", str(folder)], check=True)


def _link_packages(environment: Path) -> None:
    """Adds the folders of this process's packages; what pip installs itself comes first.

    Only the folders: of their `.pth` files one may lead to the checkout.
    """
    (packages,) = environment.glob("lib/python*/site-packages")
    found = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    (packages / "linked.pth").write_text("".join(f"{path}\n" for path in found))


def _pip(python: Path, *words: object) -> None:
    command = [str(python), "-m", "pip", "--quiet", *map(str, words)]
    subprocess.run(command, check=True, env=_clean(os.environ), timeout=_INSTALL_TIMEOUT_S)


def _clean(environ: Mapping[str, str]) -> dict[str, str]:
    """Without what would let Python import from the checkout."""
    return {name: value for name, value in environ.items() if name != "PYTHONPATH"}


@pytest.fixture
def installed(study_folder: StudyFolder, environment: Path) -> Callable[..., str]:
    """Runs a program of the environment in the user's folder; gives what it printed."""

    def run(program: str, *words: str, code: int = 0) -> str:
        ended = subprocess.run(
            [str(environment / program), *words],
            cwd=study_folder.path,
            env=_clean(study_folder.environment()),
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )
        assert ended.returncode == code, ended.stdout + ended.stderr
        return ended.stdout

    return run


@pytest.mark.timeout(_INSTALL_TIMEOUT_S)
def test_one_import_package_is_installed(installed: Callable[..., str]) -> None:
    code = f"""
import importlib.metadata, importlib.util, json
files = importlib.metadata.files({DISTRIBUTION!r})
tops = {{file.parts[0] for file in files if ".." not in file.parts}}
hidden = [name for name in ("trials", "app", "search_spaces") if importlib.util.find_spec(name)]
print(json.dumps([sorted(top for top in tops if not top.endswith(".dist-info")), hidden]))
"""
    assert json.loads(installed("python", "-c", code)) == [["tuner"], []]


@pytest.mark.timeout(_INSTALL_TIMEOUT_S)
def test_a_project_with_modules_of_the_same_names(
    installed: Callable[..., str], study_folder: StudyFolder
) -> None:
    write_project(study_folder)
    installed("tuner", "run", "study.yaml", code=EXIT_BUDGET_REACHED)
    check_values(study_folder)
    assert "x: " in installed("tuner", "best", "sqlite:///small.db", "--format", "yaml")
    installed("tuner", "report", "study.yaml", "--output", "report.html")
    assert "Plotly.newPlot" in (study_folder.path / "report.html").read_text()


@pytest.mark.timeout(_INSTALL_TIMEOUT_S)
def test_files_that_are_not_python_are_installed(
    installed: Callable[..., str], study_folder: StudyFolder
) -> None:
    installed("tuner", "init")
    assert installed("tuner", "validate", "study.yaml")
    schema = json.loads(installed("tuner", "schema"))
    assert "search_space" in schema["properties"]
    study_folder.study(
        search_space="search_spaces/adamw.yaml", budget={"trials": 1}, file="ready.yaml"
    )
    study_folder.write("forecast.py", "def train(trial):\n    return trial.params['lr']\n")
    installed("tuner", "run", "ready.yaml", code=EXIT_BUDGET_REACHED)
    installed("tuner", "docs", "--no-browser")


@pytest.mark.timeout(_INSTALL_TIMEOUT_S)
def test_the_dashboard_of_the_wheel_serves_its_own_files(
    installed: Callable[..., str], environment: Path, study_folder: StudyFolder
) -> None:
    study_folder.study(budget={"trials": 1})
    installed("tuner", "run", "study.yaml", code=EXIT_BUDGET_REACHED)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [str(environment / "tuner"), "dashboard", "study.yaml", "--port", str(port)]
    env = _clean(study_folder.environment())
    dashboard = subprocess.Popen(words, cwd=study_folder.path, env=env, start_new_session=True)
    try:
        wait_until(lambda: _get(port, "/_stcore/health") == b"ok", "the dashboard answers")
        assert b"Plotly" in _get(port, LIBRARY_PATH)
    finally:
        os.killpg(dashboard.pid, signal.SIGKILL)
        dashboard.wait()


def _get(port: int, path: str) -> bytes:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return bytes(answer.read())
    except OSError:
        return b""


@pytest.mark.timeout(_INSTALL_TIMEOUT_S)
def test_newcomers_page_runs_as_it_stands(
    environment: Path, wheel: Path, study_folder: StudyFolder
) -> None:
    env = _clean(study_folder.environment())
    env["PATH"] = os.pathsep.join([str(environment), env["PATH"]])
    blocks = _BLOCK.findall(_NEWCOMERS_PAGE.read_text())
    assert [language for language, _ in blocks] == ["sh", "python", "sh", "yaml", "sh", "sh"]
    assert "pip install" in blocks[0][1]
    assert _URL in blocks[0][1]
    printed = []
    for language, text in blocks:
        if language == "sh":
            printed.append(_in_bash(text.replace(_URL, wheel.as_uri()), study_folder.path, env))
            continue
        name = text.splitlines()[0].removeprefix("# ")
        if name == "study.yaml":
            _check_edits(study_folder.path / name, text)
        study_folder.write(name, text)
    assert "budget reached: 20 trials: " in printed[-2]
    assert "best: loss 0.0" in printed[-2]
    # What the page prints last is a command to paste.
    best = printed[-1].splitlines()[-1]
    loss = re.findall(r"loss (\S+)", _in_bash(best, study_folder.path, env))[-1]
    # A trial that was pruned has its last value, which may be lower.
    completed = "select min(value) from trial_values join trials using (trial_id) "
    completed += "where state = 'COMPLETE'"
    ((lowest,),) = study_folder.rows(completed, database="train.db")
    assert float(loss) == lowest


def _in_bash(text: str, folder: Path, env: Mapping[str, str]) -> str:
    ended = subprocess.run(
        ["bash", "-e", "-c", text],
        cwd=folder,
        env=dict(env),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=_INSTALL_TIMEOUT_S,
    )
    assert ended.returncode == 0, ended.stdout
    return ended.stdout


def _check_edits(proposed: Path, text: str) -> None:
    """The page's study file is what `tuner init` has written, with a budget."""
    content, before = yaml.safe_load(text), yaml.safe_load(proposed.read_text())
    del content["budget"]
    assert content == before


def test_a_project_with_modules_of_the_same_names_from_a_checkout(
    study_folder: StudyFolder,
) -> None:
    write_project(study_folder)
    ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    check_values(study_folder)
