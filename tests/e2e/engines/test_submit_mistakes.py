"""What `tuner submit` refuses before it asks an engine: each with what to do, and exit code 2."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.study_folder import StudyFolder
from tuner.errors import EXIT_BAD_INPUT

pytestmark = [pytest.mark.engines, pytest.mark.slow]

SERVER = "postgresql://me@db.example/tuner"
SLURM = {"name": "slurm", "nodes": 2, "time": "1h"}


@contextmanager
def folder_in(parent: Path) -> Iterator[StudyFolder]:
    """Without Slurm's commands on the PATH."""
    with tempfile.TemporaryDirectory(prefix=".tuner-submit-", dir=parent) as name:
        path = Path(name) / "user"
        (path / "bin").mkdir(parents=True)
        folder = StudyFolder(path=path, env={"PATH": str(path / "bin")})
        folder.write("forecast.py", "def train(trial):\n    return trial.params['x']\n")
        yield folder
        folder.end_all()


@pytest.fixture
def folder() -> Iterator[StudyFolder]:
    """Outside of /tmp, which each machine has for itself."""
    with folder_in(Path.home()) as folder:
        yield folder


@pytest.mark.parametrize(
    ("words", "keys", "said"),
    [
        pytest.param(
            ["--on", "pbs"],
            {},
            "The engine is 'pbs', but must be slurm, kubernetes, ray or ssh.",
            id="unknown-engine",
        ),
        pytest.param(
            [],
            {"storage": "postgresql://me@localhost/tuner"},
            "Name the machine of the database by an address that nodes reach.",
            id="localhost",
        ),
        pytest.param(
            [],
            {"storage": "sqlite:///small.db"},
            "Use a server, such as one of `tuner db serve`, or one node.",
            id="file",
        ),
        pytest.param(
            [],
            {},
            "There is no sbatch on the PATH of this machine. Use tuner submit where Slurm's",
            id="no-sbatch",
        ),
        pytest.param(
            ["--on", "kubernetes"],
            {},
            "engine.kubernetes.image is missing",
            id="no-image",
        ),
    ],
)
def test_mistake(folder: StudyFolder, words: list[str], keys: dict[str, str], said: str) -> None:
    folder.study(**{"storage": SERVER, "engine": SLURM, **keys})
    done = folder.tuner("submit", "study.yaml", *words)
    assert done.code == EXIT_BAD_INPUT, done.text
    assert said in done.err
    assert "Traceback" not in done.text
    assert "Submitted" not in done.out
    assert "small.db" not in folder.files()


def test_a_folder_of_this_machine_alone() -> None:
    with folder_in(Path("/tmp")) as folder:
        folder.study(storage=SERVER, engine=SLURM)
        done = folder.tuner("submit", "study.yaml")
    assert done.code == EXIT_BAD_INPUT
    assert "but each machine has its own /tmp. Move it to a folder that the nodes share" in done.err


def test_a_time_that_is_too_short_to_save(folder: StudyFolder) -> None:
    (folder.path / "bin" / "sbatch").touch(mode=0o755)
    trial = {"function": "forecast:train", "stop_grace": "30s"}
    folder.study(storage=SERVER, engine=SLURM | {"time": "2m"}, trial=trial)
    done = folder.tuner("submit", "study.yaml")
    assert done.code == EXIT_BAD_INPUT
    assert "Give it at least 4m, or a shorter trial.stop_grace" in done.err
