"""Machines, a database, and studies on them."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.chaos import checked
from tests.chaos.nodes import history
from tests.chaos.nodes.network import Network, address_of
from tests.chaos.nodes.node import Node, NodeKeeper, nodes_on
from tests.chaos.nodes.server import NodeServer, run_server
from tests.chaos.nodes.store import ADDRESS, ENV, Store, run_store
from tests.chaos.site import ENV_ID, Site
from tests.chaos.step_log import Line
from tests.compiling import compile_library
from tests.cuda_stub import compiled_cuda_stub
from tests.e2e.study_folder import StudyFolder
from tests.nvml_stub import NvmlStub, StubGpu
from tuner.store.connection.database import open_database

#: A second, so that three machines on two cores leave room for what is done to them.
STEP_S = 1.0
STOP_GRACE = "10s"
#: Of each machine, in the study on stand-in GPUs.
N_GPUS = 2
_ON_GPUS = "gpus"
#: Whose machines share no folder, but an object store.
STORED = "stored"
STUDIES = ("slots", _ON_GPUS, STORED)
_NVML_SOURCE = Path(__file__).parents[2] / "nvml_stub" / "nvml_stub.c"
_LOAD_BEST = (
    "import tuner; best = tuner.load_best({url!r}, study={study!r}); "
    "print(best.load_checkpoint()['step'])"
)
#: A line that is older is none of a trial that trains.
_AT_WORK_S = 10 * STEP_S


@dataclass(frozen=True, kw_only=True)
class Loss:
    """Trials that ran on a machine when it was lost, and are to continue on others."""

    kind: str
    #: Seconds since the epoch.
    at_s: float
    address: int
    #: By study.
    trials: Sequence[tuple[str, int]]

    @property
    def place(self) -> str:
        """As the database knows the machine."""
        return address_of(self.address)


@dataclass(kw_only=True)
class Cluster:
    """All that faults are done to."""

    network: Network
    server: NodeServer
    nodes: list[Node]
    sites: list[Site]
    #: Where the studies of engines go, and what is in the environment of all that is started.
    shared_folder: Path
    chaos_id: str
    epoch_s: float
    store: Store | None = None
    #: Studies that came to their end meanwhile.
    scaled: list[Site] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    #: What faults found themselves.
    findings: list[str] = field(default_factory=list)

    def now_s(self) -> float:
        """As the programs write it into their log."""
        return self.epoch_s + time.monotonic()

    def keepers(self, node: Node) -> list[NodeKeeper]:
        """The dispatchers of one machine."""
        keepers = [keeper for site in self.sites for keeper in site.keepers]
        return [each for each in keepers if isinstance(each, NodeKeeper) and each.node is node]

    def running(self, node: Node) -> list[tuple[str, Line]]:
        """Studies and newest lines of the trials that train on a machine."""
        found = []
        for site in self.sites:
            newest = {line.trial: line for line in site.log.read() if line.rank == 0}
            found += [
                (site.study, line)
                for line in newest.values()
                if line.namespace == node.address
                and line.what in ("begun", "from", "step", "saved")
                and line.at_s > self.now_s() - _AT_WORK_S
            ]
        return found

    def note_loss(self, kind: str, node: Node) -> None:
        """A machine is lost now, for so long that its trials must not wait for it."""
        trials = [(study, line.trial) for study, line in self.running(node)]
        self.losses.append(
            Loss(kind=kind, at_s=self.now_s(), address=node.address, trials=tuple(trials))
        )

    def are_all_at_work(self) -> bool:
        """Whether each machine is on and trains something."""
        return all(node.is_on and self.running(node) for node in self.nodes)


@contextmanager
def run_cluster(
    folder: Path, hosts: Sequence[str], studies: Collection[str], chaos_id: str
) -> Iterator[Cluster]:
    """Lays out studies; nothing of them runs yet.

    Args:
        folder: Where everything goes; empty.
        hosts: Names of the machines.
        studies: Of `STUDIES`.
        chaos_id: In the environment of all that is started.
    """
    with ExitStack() as stack:
        # `tuner submit` refuses what is below /tmp, which each machine has for itself.
        shared = tempfile.TemporaryDirectory(prefix=".tuner-chaos-", dir=Path.home())
        shared_folder = Path(stack.enter_context(shared))
        network = Network()
        stack.callback(network.end)
        server = stack.enter_context(run_server(network))
        open_database(server.url).close()
        history.install(server)
        nodes = nodes_on(network, server, hosts, folder)
        epoch_s = time.time() - time.monotonic()
        cluster = Cluster(
            network=network,
            server=server,
            nodes=nodes,
            sites=[],
            shared_folder=shared_folder,
            chaos_id=chaos_id,
            epoch_s=epoch_s,
        )
        if STORED in studies:
            cluster.store = stack.enter_context(run_store(network, folder))
        for study in studies:
            site = _site(cluster, folder, study, chaos_id, has_gpus=study == _ON_GPUS)
            cluster.sites.append(site)
            stack.callback(site.close)
        for node in nodes:
            stack.callback(node.lose_power)
        yield cluster


def _site(cluster: Cluster, parent: Path, study: str, chaos_id: str, *, has_gpus: bool) -> Site:
    user = parent / study / "user"
    user.mkdir(parents=True)
    env = {
        "STORAGE": cluster.server.url,
        ENV_ID: chaos_id,
        checked.ENV_LOG: str(parent / study / "steps.log"),
        checked.ENV_STEP_S: str(STEP_S),
        checked.ENV_EPOCH: str(cluster.epoch_s),
        "OMP_NUM_THREADS": "1",
    }
    folder = StudyFolder(path=user, env=env)
    folder.write("checked.py", Path(checked.__file__).read_text())
    stubs = [_stub(parent, node) for node in cluster.nodes] if has_gpus else []
    keepers = []
    for node in cluster.nodes:
        own = {"STORAGE": cluster.server.url_on_network}
        own |= node.clock.env
        words: tuple[str, ...] = ()
        if study == STORED:
            own |= ENV
            words = ("--files", str(parent / study / f"files-{node.number}"))
        if has_gpus:
            own |= stubs[node.number].env
            own["TUNER_CUDA_LIBRARY"] = str(compiled_cuda_stub(parent))
        keepers.append(
            NodeKeeper(
                name=f"node-{node.number}",
                folder=user,
                env=folder.environment(own),
                node=node,
                words=words,
            )
        )
    site = Site(
        study=study,
        folder=folder,
        keepers=list(keepers),
        has_own_disk=False,
        gpus=stubs[0] if stubs else None,
        stop_grace=STOP_GRACE,
    )
    if study == STORED:
        kept = {"keep": "best 30", "newest": 3, "store": ADDRESS}
        site.keys = {"devices": "cpu:2", "checkpoints": kept}
        site.load_best = partial(_load_best, keepers[0], study)
    return site


def _load_best(keeper: NodeKeeper, study: str) -> int:
    """On a machine, from which the object store is reached."""
    program = _LOAD_BEST.format(url=keeper.env["STORAGE"], study=study)
    done = subprocess.run(
        [*keeper.node.space.enter(keeper.folder), sys.executable, "-c", program],
        env=keeper.env,
        capture_output=True,
        text=True,
        check=False,
    )
    return int(done.stdout) if done.returncode == 0 else 0


def _stub(parent: Path, node: Node) -> NvmlStub:
    libraries, state = parent / "nvml-library", parent / f"nvml-{node.number}"
    state.mkdir()
    library = libraries / "libnvidia-ml.so.1"
    if not library.exists():
        libraries.mkdir()
        compile_library(_NVML_SOURCE, library)
    stub = NvmlStub(library=library, state_file=state / "gpus.txt", folder=state)
    stub.write([StubGpu(uuid=f"GPU-{node.number}{number}aa") for number in range(N_GPUS)])
    return stub
