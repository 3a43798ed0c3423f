"""A real Ray cluster of machines that are namespaces of this one; their cables can be pulled."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.nodes.network import Network, Space, address_of
from tests.chaos.nodes.server import NodeServer, run_server
from tests.e2e.study_folder import StudyFolder
from tests.engines.ray_cluster import SETTINGS

#: Number of the first machine; the database has a lower one.
_FIRST = 11
_PORT = 6379
_START_S = 150.0
_IS_UP = "Ray runtime started"
#: Here each node has an address of its own.
MACHINE_SETTINGS = {
    name: value for name, value in SETTINGS.items() if name != "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
}


@dataclass(frozen=True, kw_only=True)
class RayMachines:
    """Nodes `n1` (the head) and so on, with a CPU each, and a database on a machine of its own."""

    network: Network
    server: NodeServer
    spaces: dict[str, Space]

    @property
    def address(self) -> str:
        return f"{address_of(_FIRST)}:{_PORT}"

    def pull_cable(self, name: str) -> None:
        self.network.pull(_number(name))

    def has_dispatcher(self, name: str) -> bool:
        """Whether a dispatcher or one of its trials runs on a node."""
        lines = [Path(f"/proc/{pid}/cmdline") for pid in self.spaces[name].pids()]
        return any("tuner" in line.read_text() for line in lines if line.exists())


@contextmanager
def run_ray_machines(folder: StudyFolder, n_nodes: int = 3) -> Iterator[RayMachines]:
    """Starts the machines, Ray on each, and the database.

    Args:
        folder: What it is started with: environment and working directory.
        n_nodes: Number of nodes.
    """
    with ExitStack() as stack:
        network = Network()
        stack.callback(network.end)
        server = stack.enter_context(run_server(network))
        # Names of Ray's sockets are long, and may have 107 characters.
        temporary = tempfile.TemporaryDirectory(
            prefix="ray-", dir="/tmp", ignore_cleanup_errors=True
        )
        files = Path(stack.enter_context(temporary))
        machines = RayMachines(network=network, server=server, spaces={})
        for number in range(1, n_nodes + 1):
            name = f"n{number}"
            machines.spaces[name] = space = Space(["net", "pid", "uts"], name)
            stack.callback(space.end)
            network.plug(space, _number(name))
            _start(machines, name, folder, files)
        yield machines


def _number(name: str) -> int:
    return _FIRST - 1 + int(name.removeprefix("n"))


def _start(machines: RayMachines, name: str, folder: StudyFolder, files: Path) -> None:
    words = ["start", "--block", "--num-cpus=1", f"--object-store-memory={80 * 2**20}"]
    words += [f"--node-name={name}", f"--node-ip-address={address_of(_number(name))}"]
    if name == "n1":
        words += ["--head", f"--port={_PORT}", "--include-dashboard=false", f"--temp-dir={files}"]
    else:
        words.append(f"--address={machines.address}")
    log = files / f"{name}.log"
    program = "import sys; from ray.scripts.scripts import main; sys.exit(main())"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*machines.spaces[name].enter(folder.path), sys.executable, "-c", program, *words],
            env=folder.environment(MACHINE_SETTINGS),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    give_up_at_s = time.monotonic() + _START_S
    while _IS_UP not in log.read_text():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < give_up_at_s, f"{name} does not start: {log.read_text()}"
        time.sleep(0.2)
