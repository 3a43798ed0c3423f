"""A real Ray cluster of three nodes on 127.0.0.1, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

N_NODES = 3
_STOP_S = 30.0
#: In which nodes start where other tests keep the processors busy; Ray's own limit is 30 s.
_START_S = 250.0
#: Limit of a test, the start of the cluster included, where others keep the processors busy.
TEST_LASTS_S = 400
#: One address for all nodes, no account of use, no tokens. A lost node is noticed within ten
#: seconds; one that waits for a processor must not count as lost.
SETTINGS = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "5000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_raylet_start_wait_time_s": f"{_START_S:.0f}",
}
#: Starts the nodes, and does what a line on its stdin says.
_PROGRAM = """
import json, os, sys

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

import ray
from ray.cluster_utils import Cluster
from ray.experimental import internal_kv

n_nodes, start_s = int(sys.argv[1]), float(sys.argv[2])
node_args = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
head_args = node_args | {"include_dashboard": False, "node_name": "n1"}
cluster = Cluster(initialize_head=True, head_node_args=head_args)
nodes = {"n1": cluster.head_node}

def again(name):
    cluster.remove_node(nodes[name], allow_graceful=False)
    add(name)
    cluster.wait_for_nodes(timeout=start_s)

def add(name):
    nodes[name] = cluster.add_node(wait=False, node_name=name, **node_args)

def told():
    pids = {name: node.all_processes["raylet"][0].process.pid for name, node in nodes.items()}
    return {"address": cluster.address, "raylets": pids}

def empty():
    for each in ray.util.list_named_actors(all_namespaces=True):
        actor = ray.get_actor(each["name"], namespace=each["namespace"])
        ray.kill(actor, no_restart=True)
    for key in internal_kv._internal_kv_list("", namespace=b"tuner"):
        internal_kv._internal_kv_del(key, namespace=b"tuner")

for number in range(2, n_nodes + 1):
    add(f"n{number}")
cluster.wait_for_nodes(timeout=start_s)
ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
print(json.dumps(told()), file=answers, flush=True)
for line in sys.stdin:
    words = line.split()
    {"again": again, "empty": empty}[words[0]](*words[1:])
    print(json.dumps(told()), file=answers, flush=True)
ray.shutdown()
cluster.shutdown()
"""


@dataclass(kw_only=True)
class RayCluster:
    """Nodes `n1` (the head) to `n3`, with a CPU each."""

    process: subprocess.Popen[str]
    #: Its output.
    log: Path
    address: str = ""
    #: The process of each node.
    raylets: dict[str, int]

    def empty(self) -> None:
        """Ends all actors, forgets the records of allocations, and starts lost nodes again."""
        self.ask("empty")
        for name, pid in list(self.raylets.items()):
            if not _is_alive(pid):
                self.ask("again", name)

    def lose(self, name: str, *, with_programs: bool = False) -> None:
        """Kills a node's raylet, perhaps with every process that came from it."""
        raylet = psutil.Process(self.raylets[name])
        below = raylet.children(recursive=True) if with_programs else []
        for each in [raylet, *below]:
            with suppress(psutil.NoSuchProcess):
                each.kill()

    def freeze(self, name: str) -> list[psutil.Process]:
        """Stops a node's raylet and every process that came from it; says which."""
        raylet = psutil.Process(self.raylets[name])
        stopped: list[psutil.Process] = []
        while new := [each for each in _with_children(raylet) if each not in stopped]:
            for each in new:
                with suppress(psutil.NoSuchProcess):
                    each.suspend()
            stopped += new
        return stopped

    def ask(self, *words: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(words) + "\n")
        self.process.stdin.flush()
        self.read()

    def read(self) -> None:
        """What the process has to say of its nodes."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the process of the Ray cluster has ended: {self.log.read_text()[-2000:]}"
        found: dict[str, Any] = json.loads(line)
        self.address, self.raylets = found["address"], found["raylets"]


def _with_children(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


def _is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture(scope="session")
def ray_server() -> Iterator[RayCluster]:
    """One for all tests; skipped where Ray is not installed, but for CI."""
    if find_spec("ray") is None:
        missing = "Ray is needed: pip install --requirement requirements-engines.lock"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    # Names of Ray's sockets are long, and may have 107 characters.
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as name:
        path = Path(name) / "cluster.log"
        with path.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(N_NODES), str(_START_S)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | SETTINGS | {"RAY_TMPDIR": name},
                start_new_session=True,
            )
        cluster = RayCluster(process=process, log=path, raylets={})
        try:
            cluster.read()
            yield cluster
        finally:
            _stop(process)


def _stop(process: subprocess.Popen[str]) -> None:
    below: list[psutil.Process] = []
    with suppress(psutil.NoSuchProcess):
        below = psutil.Process(process.pid).children(recursive=True)
    assert process.stdin is not None
    with suppress(OSError):
        process.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_S)
    process.kill()
    process.wait()
    for each in below:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    assert process.stdout is not None
    process.stdout.close()
