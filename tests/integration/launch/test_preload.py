"""What is imported ahead of the fork, and what is not worth it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tuner.launch.local_host import entry, preload

_ROOT = Path(__file__).parents[3]


def imported(folder: Path, text: str, helper: str = "") -> set[str]:
    """Which of the expensive modules a fork server has for a user's module."""
    (folder / "users_module.py").write_text(text)
    (folder / "users_helper.py").write_text(helper)
    log = folder / "log"
    code = (
        "import sys, tuner.launch.local_host.preload; print(*sys.modules, file=open('found', 'w'))"
    )
    environment = {
        preload.ENV_MODULES: f"{entry.__name__},{entry.FUNCTION_WORKER},users_module",
        preload.ENV_SYS_PATH: f"{folder}:{_ROOT}:{':'.join(sys.path)}",
        preload.ENV_LOG: str(log),
        "PYTHONPATH": str(_ROOT),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, check=False, timeout=60
    )
    assert done.returncode == 0, log.read_text()
    expensive = {"torch", "torch._dynamo", "sqlalchemy", "pydantic"}
    return expensive & set((folder / "found").read_text().split())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def train(trial):\n    return trial.params['x']\n", set()),
        ("def train(trial):\n    import torch\n", {"torch"}),
        ("def train(trial):\n    trial.save({})\n", {"torch"}),
        ("import torch\nsgd = torch.optim.SGD\n", {"torch", "torch._dynamo"}),
        ("this is no Python\n", set()),
    ],
    ids=["none", "in-the-function", "checkpoint", "optimizer", "broken"],
)
def test_torch_is_imported_where_the_user_s_text_needs_it(
    text: str, expected: set[str], tmp_path: Path
) -> None:
    assert imported(tmp_path, text) == expected


def test_modules_that_the_user_s_module_imports_are_read_too(tmp_path: Path) -> None:
    helper = "def fit():\n    import torch\n"
    assert imported(tmp_path, "import users_helper\n", helper) == {"torch"}


def test_modules_of_libraries_are_not_read_wherever_they_are_installed(tmp_path: Path) -> None:
    library = tmp_path / "home" / "site-packages"
    library.mkdir(parents=True)
    (library / "a_library.py").write_text("def fit():\n    import torch\n")
    text = f"import sys\nsys.path.append({str(library)!r})\nimport a_library\n"
    assert imported(tmp_path, text) == set()
