"""A study whose nodes an engine lends: submitted twice, scaled up and down while it runs."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.chaos import checked
from tests.chaos.nodes.cluster import STEP_S, STOP_GRACE, Cluster
from tests.chaos.nodes.network import Space, address_of
from tests.chaos.site import ENV_ID, Site
from tests.e2e.study_folder import REPOSITORY, StudyFolder
from tests.engines.ssh_server import SshServer, lay_out, sshd_program

#: Nodes that are wanted, one after the other; the first ones are submitted, twice.
N_NODES = (8, 2, 8)
N_TRIALS = 60
#: Between two changes.
_HOLDS_S = 20.0
_COMMAND_S = 180.0
_END_S = 420.0
_POLL_S = 1.0
_FILE = "study.yaml"
_PORT = 2222
#: Addresses of the machine on which commands are typed, and of the hosts that they name.
_LOGIN, _FIRST_HOST = 3, 200
#: The last part of a machine's own address, as its step log has it.
_MACHINE = "$(ip -4 -o address show dev eth0 | awk '{split($4, a, \"[./]\"); print a[4]; exit}')"
_OPEN = "SELECT name, state FROM tuner_allocations WHERE state NOT IN ('ended', 'failed')"


@dataclass(kw_only=True)
class ScaledStudy:
    """A study, and the machine on which its user types.

    Args:
        cluster: On which it runs, too.
        name: Of the study.
    """

    cluster: Cluster
    name: str
    site: Site = field(init=False)
    _login: Space = field(init=False)
    _servers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def play(self) -> None:
        """Runs it from its first command to its end, and leaves it to the judge."""
        with self._hosts() as hosts:
            self.site = self._make_site(hosts)
            self.site.allow(N_TRIALS)
            first, *later = N_NODES
            self._tuner("submit", _FILE, "--nodes", str(first))
            again = self._tuner("submit", _FILE, "--nodes", str(first))
            if f"has {first} allocations" not in again:
                self.cluster.findings.append(f"submitted twice: {again.strip()}")
            for number in later:
                time.sleep(_HOLDS_S)
                self._tuner("scale", _FILE, str(number))
            self._await_end()
        self.cluster.scaled.append(self.site)

    def _await_end(self) -> None:
        give_up_at_s = time.monotonic() + _END_S
        # Asking brings the table up to date.
        while self._tuner("devices", "--allocations", _FILE) and self.cluster.server.execute(_OPEN):
            if time.monotonic() > give_up_at_s:
                left = self.cluster.server.execute(_OPEN)
                self.cluster.findings.append(f"allocations that do not end: {left}")
                self._tuner("cancel", _FILE)
                return
            time.sleep(_POLL_S)

    def _tuner(self, *words: str) -> str:
        """A command of the user; what it printed."""
        command = self.site.folder.tuner_words(*words)
        done = subprocess.run(
            [*self._login.enter(self.site.folder.path), *command],
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=_COMMAND_S,
            check=False,
        )
        if done.returncode:
            text = f"tuner {' '.join(words)} ended with {done.returncode}: {done.stderr.strip()}"
            self.cluster.findings.append(text)
        return done.stdout + done.stderr

    def _environment(self) -> dict[str, str]:
        return self.site.folder.environment({"STORAGE": self.cluster.server.url_on_network})

    def _make_site(self, hosts: dict[str, SshServer]) -> Site:
        user = self.cluster.shared_folder / self.name / "user"
        user.mkdir(parents=True)
        env = {
            "STORAGE": self.cluster.server.url,
            ENV_ID: self.cluster.chaos_id,
            checked.ENV_LOG: str(self.cluster.shared_folder / self.name / "steps.log"),
            checked.ENV_STEP_S: str(STEP_S),
            checked.ENV_EPOCH: str(self.cluster.epoch_s),
            "OMP_NUM_THREADS": "1",
        }
        folder = StudyFolder(path=user, env=env)
        folder.write("checked.py", Path(checked.__file__).read_text())
        taken = {**env, "STORAGE": self.cluster.server.url_on_network}
        taken["PYTHONPATH"] = str(REPOSITORY)
        exports = [f"export {name}={shlex.quote(value)}" for name, value in taken.items()]
        path = shlex.quote(str(Path(sys.executable).parent))
        setup = [*exports, f"export {checked.ENV_MACHINE}={_MACHINE}", f"export PATH={path}:$PATH"]
        (server, *_) = hosts.values()
        engine = {
            "name": "ssh",
            "nodes": max(N_NODES),
            "idle": "5s",
            "setup": setup,
            "ssh": {"hosts": list(hosts), "options": server.options},
        }
        return Site(
            study=self.name,
            folder=folder,
            keepers=[],
            has_own_disk=False,
            stop_grace=STOP_GRACE,
            keys={"devices": "cpu:2", "engine": engine},
        )

    @contextmanager
    def _hosts(self) -> Iterator[dict[str, SshServer]]:
        """A server on each machine, which has several names; and the machine of the user."""
        program = sshd_program()
        assert program is not None, "sshd is not installed: apt-get install openssh-server"
        names = {node.number: _names_of(node.number, self.cluster) for node in self.cluster.nodes}
        keys = self.cluster.shared_folder / f"{self.name}-ssh"
        keys.mkdir()
        everywhere = [name for each in names.values() for name in each]
        command = lay_out(program, keys, _PORT, ["0.0.0.0"])
        server = SshServer(folder=keys, port=_PORT)
        self._login = Space(["net", "pid", "uts"], "login")
        self.cluster.network.plug(self._login, _LOGIN)
        try:
            for node in self.cluster.nodes:
                for name in names[node.number]:
                    node.space.ip("address", "add", f"{name}/24", "dev", "eth0")
                with (keys / f"log-{node.number}").open("wb") as log:
                    enter = node.space.enter(keys)
                    self._servers.append(
                        subprocess.Popen([*enter, *command], stdout=log, stderr=log)
                    )
            yield dict.fromkeys(sorted(everywhere), server)
        finally:
            self._login.end()
            for each in self._servers:
                _end(each)


def _names_of(number: int, cluster: Cluster) -> Sequence[str]:
    n_nodes = len(cluster.nodes)
    return [address_of(_FIRST_HOST + n) for n in range(number, max(N_NODES), n_nodes)]


def _end(nsenter: subprocess.Popen[bytes]) -> None:
    """The server below it, but not the dispatchers that were started over it."""
    with suppress(psutil.Error):
        for child in psutil.Process(nsenter.pid).children():
            child.terminate()
    nsenter.wait()
