"""A real Slurm on this machine: several slurmd on one host, with GPUs that are device nodes.

Needs root (munged runs as `munge`, mknod makes the GPUs) and Debian's `slurm-wlm` and `munge`.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

WAIT_S = 60.0
#: Seconds between SIGTERM and SIGKILL.
KILL_WAIT_S = 8
_CONF = """
ClusterName=tuner
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={s}/munge/sock,cred_expire=5
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={s}/state
SlurmdSpoolDir={s}/spool/%n
SlurmctldPidFile={s}/slurmctld.pid
SlurmdPidFile={s}/slurmd-%n.pid
SlurmctldLogFile={s}/log/slurmctld.log
SlurmdLogFile={s}/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
GresTypes=gpu
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait={kill_wait}
MinJobAge=300
SlurmdTimeout=30
NodeName=n[1-{n}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{ports[1]}-{last}] \\
  CPUs=4 RealMemory=4000 Gres=gpu:4
PartitionName=low Nodes=n[1-{n}] Default=YES MaxTime=60 PriorityTier=1
PartitionName=high Nodes=n[1-{n}] MaxTime=60 PriorityTier=10 PreemptMode=OFF
"""


_CGROUP_CONF = """
CgroupPlugin=cgroup/v1
CgroupMountpoint={mountpoint}
CgroupAutomount=no
ConstrainDevices=yes
"""
_CGROUPS = Path("/sys/fs/cgroup")


def is_installed() -> bool:
    """Whether this machine can run a Slurm of its own."""
    programs = ("slurmctld", "slurmd", "munged", "sbatch")
    return os.geteuid() == 0 and all(shutil.which(program) for program in programs)


@dataclass(frozen=True, kw_only=True)
class SlurmCluster:
    """A controller and some nodes, all on 127.0.0.1."""

    folder: Path
    n_nodes: int
    #: Whether a job may open its own GPUs only, by the kernel's device cgroups.
    confines_devices: bool = False
    #: Ids of jobs of earlier tests.
    earlier: set[int] = field(default_factory=set)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def env(self) -> dict[str, str]:
        """What makes Slurm's commands find it."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def run(self, *words: str) -> str:
        """Runs one of Slurm's commands and gives its output."""
        done = subprocess.run(
            words, env={**os.environ, **self.env}, capture_output=True, text=True, timeout=30
        )
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    def states(self) -> dict[str, str]:
        """The state of each array task since the last `empty`."""
        lines = self.run("squeue", "-h", "-r", "--states=all", "-o", "%F_%K|%T|%F").splitlines()
        rows = [line.split("|") for line in lines]
        new = [row for row in rows if int(row[2]) not in self.earlier]
        return {name: state for name, state, _ in new if not name.endswith("_N/A")}

    def restarts(self, name: str) -> int:
        """How often Slurm has started an array task again."""
        found = re.search(r"\bRestarts=(\d+)", self.run("scontrol", "show", "job", name))
        return int(found[1]) if found else 0

    def limit(self, name: str, *, left_s: float) -> None:
        """Ends an array task so many seconds from now, or up to a minute later."""
        passed = self.run("squeue", "-h", "-r", "-j", name, "-o", "%M").strip().split(":")
        passed_s = sum(int(part) * 60**place for place, part in enumerate(reversed(passed)))
        limit = math.ceil((passed_s + left_s) / 60)
        self.run("scontrol", "update", f"JobId={name}", f"TimeLimit={limit}")

    def start(self) -> None:
        for name in ("munge", "state", "spool", "log", "dev"):
            (self.folder / name).mkdir()
        _start_munge(self.folder / "munge", self.processes)
        for number in range(4):
            device = self.folder / "dev" / f"nvidia{number}"
            os.mknod(device, 0o600 | 0o020000, os.makedev(195, number))
        self._write_conf()
        env = {**os.environ, **self.env}
        self._spawn(["slurmctld", "-D", "-c"], env)
        for number in range(1, self.n_nodes + 1):
            (self.folder / "spool" / f"n{number}").mkdir()
            self._spawn(["slurmd", "-D", "-N", f"n{number}", "-c"], env)
        until(self._is_up, "all nodes are idle")

    def empty(self) -> None:
        """Ends all jobs, so that the next test finds the nodes free and knows none of them."""
        self.run("scancel", "--me")
        until(lambda: not self.run("squeue", "-h", "-t", "PD,R,CG"), "no job is left")
        self.earlier.update(
            int(job) for job in self.run("squeue", "-h", "--states=all", "-o", "%F").split()
        )

    def _write_conf(self) -> None:
        ports = _free_ports(1 + self.n_nodes)
        text = _CONF.format(
            host=socket.gethostname().split(".")[0],
            s=self.folder,
            ports=ports,
            last=ports[-1],
            n=self.n_nodes,
            kill_wait=KILL_WAIT_S,
        )
        if self.confines_devices:
            text = text.replace("proctrack/linuxproc", "proctrack/cgroup")
            text = text.replace("task/none", "task/cgroup")
            cgroup = _CGROUP_CONF.format(mountpoint=_CGROUPS)
            (self.folder / "cgroup.conf").write_text(cgroup)
        (self.folder / "slurm.conf").write_text(text)
        gres = f"NodeName=n[1-{self.n_nodes}] Name=gpu File={self.folder}/dev/nvidia[0-3]\n"
        (self.folder / "gres.conf").write_text(gres)

    def _spawn(self, words: list[str], env: dict[str, str]) -> None:
        log = (self.folder / "log" / "stderr").open("ab")
        self.processes.append(subprocess.Popen(words, env=env, stdout=log, stderr=log))

    def _is_up(self) -> bool:
        with suppress(AssertionError):
            states = self.run("sinfo", "-h", "-p", "low", "-N", "-o", "%t").split()
            return states == ["idle"] * self.n_nodes
        return False

    def stop(self) -> None:
        with suppress(AssertionError, OSError):
            self.empty()
        for process in reversed(self.processes):
            process.terminate()
        for process in reversed(self.processes):
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _start_munge(folder: Path, processes: list[subprocess.Popen[bytes]]) -> None:
    (folder / "key").write_bytes(os.urandom(128))
    (folder / "key").chmod(0o400)
    for path in (folder, folder / "key"):
        shutil.chown(path, "munge", "munge")
    folder.chmod(0o755)
    words = ["munged", "--foreground", f"--key-file={folder}/key", f"--socket={folder}/sock"]
    words += [f"--pid-file={folder}/pid", f"--log-file={folder}/log", f"--seed-file={folder}/seed"]
    log = (folder.parent / "log" / "munged").open("ab")
    as_munge = ["setpriv", "--reuid=munge", "--regid=munge", "--clear-groups", *words]
    processes.append(subprocess.Popen(as_munge, stdout=log, stderr=log))
    until((folder / "sock").exists, "munged listens")


def _free_ports(n: int) -> list[int]:
    """A number of ports in a row."""
    for first in range(26800 + os.getpid() % 1000, 32000, n):
        sockets = []
        with suppress(OSError):
            for port in range(first, first + n):
                sockets.append(socket.create_server(("127.0.0.1", port)))
        for each in sockets:
            each.close()
        if len(sockets) == n:
            return list(range(first, first + n))
    raise AssertionError("no ports are free")


def until(is_so: Callable[[], object], what: str, wait_s: float = WAIT_S) -> None:
    """Polls, for a bounded time, something that other processes bring about."""
    give_up_at_s = time.monotonic() + wait_s
    while not is_so():
        assert time.monotonic() < give_up_at_s, f"After {wait_s:.0f} s still not so: {what}"
        time.sleep(0.1)


def has_device_cgroups() -> bool:
    """Whether this machine's kernel and mounts let Slurm make device cgroups (version 1)."""
    needed = ("devices", "freezer")
    return all(os.access(_CGROUPS / each / "tasks", os.W_OK) for each in needed)


@contextmanager
def slurm_cluster(
    folder: Path, n_nodes: int = 2, *, confines_devices: bool = False
) -> Iterator[SlurmCluster]:
    """A cluster that runs while it is entered; the way to `folder` must be open to `munge`."""
    cluster = SlurmCluster(folder=folder, n_nodes=n_nodes, confines_devices=confines_devices)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="session")
def slurm_server() -> Iterator[SlurmCluster]:
    """A Slurm with two nodes of four GPUs; skipped where it is not installed, but for CI."""
    if not is_installed():
        missing = "Slurm's programs and root are needed: apt-get install slurm-wlm munge"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    # Not below pytest's own folder, into which `munge` may not look.
    with tempfile.TemporaryDirectory(prefix="tuner-slurm-") as name:
        Path(name).chmod(0o755)
        with slurm_cluster(Path(name)) as cluster:
            yield cluster
