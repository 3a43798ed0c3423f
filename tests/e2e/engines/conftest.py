"""A user's folder on a machine from which a real engine can be used."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.study_folder import REPOSITORY, StudyFolder
from tests.engines.ray_cluster import SETTINGS, RayCluster
from tests.engines.slurm_cluster import SlurmCluster
from tests.servers import Server

if TYPE_CHECKING:
    from tests.engines.kubernetes_cluster import Cluster

#: Trains step by step, writes down each step with where, and waits at a step until `go` is there.
STEPS = """
import os, time
from pathlib import Path

import optuna

LOG = Path(os.environ["STEPS_LOG"])

def train(trial):
    state = trial.load_checkpoint()
    for step in range(state["step"] + 1 if state else 0, 6):
        with LOG.open("a") as log:
            where = os.environ.get("SLURMD_NODENAME", "")
            log.write(f"{trial.number} {step} {where}\\n")
        trial.save_checkpoint({"step": step}, step)
        trial.report(trial.params["x"], step)
        while not trial.should_prune() and step == 3 and not LOG.with_name("go").exists():
            trial.report(trial.params["x"], step)
            time.sleep(0.05)
        if trial.should_prune():
            raise optuna.TrialPruned
    return trial.params["x"]
"""


@pytest.fixture
def steps_log(tmp_path: Path) -> Path:
    """Lines of trial, step and node; trials wait at step 3 until `go` is beside it."""
    return tmp_path / "steps"


@pytest.fixture
def engine_folder(study_folder: StudyFolder, postgresql: Server, steps_log: Path) -> StudyFolder:
    """A folder in a git repository, with a program that trains in steps, and a database."""
    study_folder.env |= {
        "STORAGE": postgresql.new_database(),
        "STEPS_LOG": str(steps_log),
        "PYTHONPATH": str(REPOSITORY),
    }
    study_folder.write("forecast.py", STEPS)
    subprocess.run(["git", "init", "-q", str(study_folder.path)], check=True)
    return study_folder


@pytest.fixture
def slurm_folder(engine_folder: StudyFolder, slurm_server: SlurmCluster) -> Iterator[StudyFolder]:
    engine_folder.env |= slurm_server.env
    yield engine_folder
    slurm_server.empty()


@pytest.fixture
def ray_folder(engine_folder: StudyFolder, ray_server: RayCluster) -> Iterator[StudyFolder]:
    engine_folder.env |= SETTINGS
    yield engine_folder
    ray_server.empty()


@pytest.fixture
def cluster(engine_folder: StudyFolder, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A cluster whose image is the study's folder; the database has the name db.example there."""
    pytest.importorskip("kubernetes_validate")
    from tests.engines.kubernetes_cluster import Cluster
    from tests.engines.kubernetes_server import KubernetesServer

    # libpq connects to hostaddr and asks no name server for the host.
    storage = engine_folder.env["STORAGE"].replace("127.0.0.1", "db.example")
    engine_folder.env["STORAGE"] = f"{storage}?hostaddr=127.0.0.1"
    cluster = Cluster(image_folder=engine_folder.path)
    with KubernetesServer(cluster).running() as server:
        kubeconfig = server.write_kubeconfig(engine_folder.path / "kubeconfig", namespace="vision")
        engine_folder.env["KUBECONFIG"] = str(kubeconfig)
        # In place of a Secret: variables of the nodes.
        for name in ("STORAGE", "STEPS_LOG", "PYTHONPATH"):
            monkeypatch.setenv(name, engine_folder.env[name])
        yield cluster


def write_forecast_study(
    folder: StudyFolder, engine: Mapping[str, object], *, trials: int = 4
) -> None:
    """The study of STEPS on an engine."""
    folder.study(
        storage="${STORAGE}",
        pruner="none",
        devices="cpu:2",
        budget={"trials": trials},
        trial={"function": "forecast:train", "stop_grace": "3s"},
        engine=dict(engine),
    )


def setup_of(folder: StudyFolder) -> list[str]:
    """Lines of `engine.setup`, where variables of `tuner submit` do not travel."""
    exports = [
        f"export {name}={shlex.quote(folder.env[name])}" for name in ("STORAGE", "STEPS_LOG")
    ]
    return [*exports, f"export PYTHONPATH={REPOSITORY}"]


def module_setup(folder: StudyFolder) -> list[str]:
    """Lines that set the same variables by an environment module.

    `tuner submit` is not given the last of them. Skipped without Environment Modules, but for CI.
    """
    if not Path("/usr/share/modules/init/bash").exists():
        missing = "Environment Modules are needed: apt-get install environment-modules"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    file = folder.path.parent / "modules" / "train" / "1.0"
    file.parent.mkdir(parents=True)
    log = folder.env.pop("STEPS_LOG")
    file.write_text(f"#%Module1.0\nsetenv STEPS_LOG {log}\n")
    rest = [
        f"export STORAGE={shlex.quote(folder.env['STORAGE'])}",
        f"export PYTHONPATH={REPOSITORY}",
    ]
    return [*rest, f"module use {file.parents[1]}", "module load train/1.0"]


def steps_of(log: Path) -> list[tuple[int, int]]:
    """Trial and step, in the order in which they were trained."""
    lines = log.read_text().splitlines() if log.exists() else []
    return [(int(line.split()[0]), int(line.split()[1])) for line in lines]
