"""The engines over which the contract tests run: a fake one always, real ones where they are."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from tests.contract.engines.fakes import FakeEngine
from tests.engines.ray_cluster import N_NODES, SETTINGS, TEST_LASTS_S, RayCluster
from tests.engines.slurm_cluster import SlurmCluster
from tests.engines.ssh_server import HOSTS, SshServer
from tuner.config.sections.engine import EngineConfig, EngineName, RayConfig, SshConfig
from tuner.domain.allocation import Allocation
from tuner.engines.port import AllocationOrder, Engine
from tuner.engines.ray.engine import RayEngine
from tuner.engines.registry import open_engine
from tuner.engines.slurm.engine import SlurmEngine
from tuner.engines.ssh.engine import SshEngine

if TYPE_CHECKING:
    from tests.engines.kubernetes_server import KubernetesServer

WAIT_S = 60.0
#: Variables with the kubeconfig of a real cluster, and an image in which `python` runs.
REAL_KUBECONFIG, REAL_IMAGE = "KUBECONFIG_FOR_TESTS", "IMAGE_FOR_TESTS"
#: Stands in for `python -m tuner.run`: it says where it runs, and ends when it is asked to.
PROGRAM = """
import pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
signal.signal(signal.SIGTERM, lambda *_: (folder.joinpath("asked").touch(), sys.exit(0)))
print("the dispatcher speaks", flush=True)
folder.joinpath("started").touch()
time.sleep(float(sys.argv[2]))
"""


class Bench(Protocol):
    """An engine, and what the suite needs to try it."""

    engine: Engine
    #: More allocations than the engine has nodes for.
    n_too_many: int

    def order(self, study: str, *, seconds: float = 600.0) -> AllocationOrder:
        """Allocations whose program sleeps for so long, or until SIGTERM."""


def until(is_so: Callable[[], bool], what: str) -> None:
    """Polls, for a bounded time, something that the engine brings about."""
    give_up_at_s = time.monotonic() + WAIT_S
    while not is_so():
        if time.monotonic() > give_up_at_s:
            pytest.fail(f"After {WAIT_S:.0f} s still not so: {what}")
        time.sleep(0.1)


def an_order(study: str, folder: Path, seconds: float) -> AllocationOrder:
    """The order of benches whose nodes see this machine's folders."""
    program = folder / "program.py"
    program.write_text(PROGRAM)
    return AllocationOrder(
        study=study,
        command=(sys.executable, str(program), str(folder), str(seconds)),
        folder=folder,
        log_folder=folder / "logs",
        environment={"GREETING": "it's me"},
        time_s=600.0,
        stop_grace_s=1.0,
    )


class FakeBench:
    n_too_many = 3

    def __init__(self, folder: Path) -> None:
        self.engine = FakeEngine(n_nodes=2)
        self._folder = folder

    def order(self, study: str, *, seconds: float = 600.0) -> AllocationOrder:
        return an_order(study, self._folder, seconds)


class SlurmBench:
    n_too_many = 3

    def __init__(self, folder: Path) -> None:
        self.engine: Engine = SlurmEngine(EngineConfig(name=EngineName.SLURM))
        self._folder = folder

    def order(self, study: str, *, seconds: float = 600.0) -> AllocationOrder:
        return replace(an_order(study, self._folder, seconds), devices=4)


class SshBench:
    n_too_many = 0  # A host has a node at once, or there is none: nothing waits.

    def __init__(self, server: SshServer, folder: Path) -> None:
        options = tuple(server.options)
        ssh = SshConfig(hosts=HOSTS, options=options)
        self.engine: Engine = SshEngine(EngineConfig(name=EngineName.SSH, ssh=ssh))
        self._folder = folder

    def order(self, study: str, *, seconds: float = 600.0) -> AllocationOrder:
        return an_order(study, self._folder, seconds)


class RayBench:
    n_too_many = N_NODES + 1

    def __init__(self, server: RayCluster, folder: Path) -> None:
        # Allocations without a node are refused, unless the cluster adds nodes.
        ray = RayConfig(address=server.address, autoscaling=True)
        self.engine: Engine = RayEngine(EngineConfig(name=EngineName.RAY, ray=ray))
        self._folder = folder

    def order(self, study: str, *, seconds: float = 600.0) -> AllocationOrder:
        return an_order(study, self._folder, seconds)


#: A real engine adds a fixture of its name that returns a Bench, and a line here.
BENCHES = [
    "fake",
    pytest.param("slurm", marks=[pytest.mark.slow, pytest.mark.engines]),
    pytest.param("ssh", marks=[pytest.mark.slow, pytest.mark.engines]),
    pytest.param(
        "ray",
        marks=[pytest.mark.slow, pytest.mark.engines, pytest.mark.timeout(TEST_LASTS_S)],
    ),
    pytest.param("kubernetes", marks=[pytest.mark.slow, pytest.mark.engines]),
    *(
        [pytest.param("real_kubernetes", marks=[pytest.mark.slow, pytest.mark.engines])]
        if REAL_KUBECONFIG in os.environ
        else []
    ),
]


@pytest.fixture
def fake(tmp_path: Path) -> FakeBench:
    return FakeBench(tmp_path)


@pytest.fixture
def slurm(
    slurm_server: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SlurmBench]:
    monkeypatch.setenv("SLURM_CONF", slurm_server.env["SLURM_CONF"])
    yield SlurmBench(tmp_path)
    slurm_server.empty()


class KubernetesBench:
    n_too_many = 3

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine = engine
        self._folder = folder

    def order(self, study: str, *, seconds: float = 600.0) -> AllocationOrder:
        return an_order(study, self._folder, seconds)


@pytest.fixture
def kubernetes_server() -> Iterator[KubernetesServer]:
    pytest.importorskip("kubernetes")
    pytest.importorskip("kubernetes_validate")
    from tests.engines.kubernetes_cluster import Cluster
    from tests.engines.kubernetes_server import KubernetesServer

    with KubernetesServer(Cluster()).running() as server:
        yield server


@pytest.fixture
def kubernetes(
    kubernetes_server: KubernetesServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> KubernetesBench:
    kubeconfig = kubernetes_server.write_kubeconfig(tmp_path / "kubeconfig")
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    return KubernetesBench(kubernetes_engine(), tmp_path)


class RealKubernetesBench:
    n_too_many = 0  # How many nodes it has is not known.

    def __init__(self, folder: Path) -> None:
        self.engine = kubernetes_engine(image=os.environ.get(REAL_IMAGE, "python:3.12-slim"))
        self._folder = folder
        self._studies: set[str] = set()

    def order(self, study: str, *, seconds: float = 600.0) -> AllocationOrder:
        self._studies.add(study)
        # Of this machine's folders the pods see none.
        command = ("python", "-c", PROGRAM, "/tmp", str(seconds))
        return replace(an_order(study, self._folder, seconds), command=command)

    def end(self) -> None:
        for study in self._studies:
            self.engine.cancel([each.name for each in self.engine.allocations(study)])
            until(lambda study=study: self.engine.allocations(study) == (), "no Job is left")  # type: ignore[misc]


@pytest.fixture
def real_kubernetes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RealKubernetesBench]:
    monkeypatch.setenv("KUBECONFIG", os.environ[REAL_KUBECONFIG])
    bench = RealKubernetesBench(tmp_path)
    yield bench
    bench.end()


def kubernetes_engine(**settings: object) -> Engine:
    """The engine with an image that the cluster has."""
    kubernetes = {"image": "train:1"} | settings
    return open_engine(
        EngineConfig.model_validate({"name": "kubernetes", "kubernetes": kubernetes})
    )


@pytest.fixture
def ssh(ssh_server: SshServer, tmp_path: Path) -> Iterator[SshBench]:
    yield SshBench(ssh_server, tmp_path)
    shutil.rmtree(ssh_server.home / ".tuner", ignore_errors=True)


@pytest.fixture
def ray(
    ray_server: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RayBench]:
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    yield RayBench(ray_server, tmp_path)
    ray_server.empty()


@pytest.fixture(params=BENCHES)
def bench(request: pytest.FixtureRequest) -> Bench:
    found: Bench = request.getfixturevalue(request.param)
    return found


def by_number(engine: Engine, study: str) -> dict[int, Allocation]:
    """What the engine knows of a study."""
    return {each.number: each for each in engine.allocations(study)}
