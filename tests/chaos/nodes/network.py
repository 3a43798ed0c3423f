"""Namespaces that stand for machines, and the network between them.

Linux alone: unshare(1), nsenter(1) and ip(8), as root. There is no packet filter in it, since not
every kernel has one: a cable is pulled on the side of the bridge, and what goes one way only is
lost through a neighbour entry with an address that nobody has.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1
#: Orphans of a PID namespace fall to its first process, which has to wait for them.
_HOLD = 'test -z "$0" || hostname "$0"; ip link set lo up; sleep infinity & echo; wait'
_BRIDGE = "bridge"
_CARD = "eth0"
_NOBODY = "02:00:00:00:ff:ff"
_NET = "10.77.0"


class Space:
    """Namespaces that exist as long as a process which holds them.

    Args:
        kinds: `net`, `pid`, `uts`.
        host: Name of the machine that it stands for.
    """

    def __init__(self, kinds: Collection[str], host: str = "") -> None:
        self._kinds = kinds
        flags = [f"--{kind}" for kind in kinds] + (["--mount-proc"] if "pid" in kinds else [])
        self._process = subprocess.Popen(
            ["unshare", *flags, "--fork", "--kill-child", "sh", "-c", _HOLD, host],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
            # `unshare` ends its child when it ends, and with that all that is in the namespaces.
            preexec_fn=lambda: _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline(), "unshare has failed"
        (child,) = psutil.Process(self._process.pid).children()
        self.pid = child.pid
        self._holders = {child.pid, *(each.pid for each in child.children())}
        self._namespace = os.stat(f"/proc/{self.pid}/ns/pid").st_ino

    def enter(self, folder: Path) -> Sequence[str]:
        """What to put before a command that is to run there, in a folder."""
        letters = {"net": "-n", "pid": "-p", "uts": "-u"}
        # Whose view of the mounts changes is in the root folder again.
        mounts = ["-m", f"--wdns={folder}"] if "pid" in self._kinds else []
        return ["nsenter", "-t", str(self.pid), *map(letters.__getitem__, self._kinds), *mounts]

    def ip(self, *words: str) -> None:
        """Changes its network."""
        command = ["nsenter", "-t", str(self.pid), "-n", "ip", *words]
        subprocess.run(command, check=True, stderr=subprocess.PIPE)

    def pids(self) -> set[int]:
        """All processes in its PID namespace, but for the one that holds it."""
        found = set()
        for pid in psutil.pids():
            with suppress(OSError):
                if os.stat(f"/proc/{pid}/ns/pid").st_ino == self._namespace:
                    found.add(pid)
        return found - self._holders

    def signal(self, number: signal.Signals) -> None:
        """To every process in it; also to those that appear meanwhile."""
        reached: set[int] = set()
        while new := self.pids() - reached:
            reached |= new
            for pid in new:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)

    def is_there(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        """SIGKILL of all that is in it. Safe to call twice."""
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


@dataclass(kw_only=True)
class Network:
    """A switch, and the machines that are plugged into it; each has its number as address."""

    _switch: Space = field(init=False)

    def __post_init__(self) -> None:
        # With PIDs of its own nothing of it outlives its first process.
        self._switch = Space(["net", "pid"])
        self._switch.ip("link", "add", "name", _BRIDGE, "type", "bridge")
        self._switch.ip("link", "set", _BRIDGE, "up")

    def plug(self, space: Space, number: int) -> None:
        """A new cable to a machine, whose earlier one is gone with it."""
        port, card = _port(number), ("name", _CARD, "netns", str(space.pid))
        self._remove(port)
        add = ("link", "add", "name", port, "type", "veth", "peer")
        self._switch.ip(*add, *card)
        self._switch.ip("link", "set", port, "master", _BRIDGE, "up")
        space.ip("link", "set", _CARD, "address", _card_of(number))
        space.ip("link", "set", _CARD, "up")
        space.ip("address", "add", f"{address_of(number)}/24", "dev", _CARD)

    def _remove(self, port: str) -> None:
        with suppress(subprocess.CalledProcessError):  # Its machine is gone for longer.
            self._switch.ip("link", "delete", port)

    def move(self, space: Space, number: int, to: int) -> None:
        """A machine gets the address of another one, which is gone; its cable is put back."""
        # The kernel takes its time to remove the card of the other one, which answers till then.
        self._remove(_port(to))
        space.ip("link", "set", _CARD, "address", _card_of(to))
        space.ip("address", "delete", f"{address_of(number)}/24", "dev", _CARD)
        space.ip("address", "add", f"{address_of(to)}/24", "dev", _CARD)
        self.pull(number)
        self._switch.ip("link", "set", _port(number), "name", _port(to))
        self.put_back(to)

    def pull(self, number: int) -> None:
        self._switch.ip("link", "set", _port(number), "down")

    def put_back(self, number: int) -> None:
        self._switch.ip("link", "set", _port(number), "up")

    def end(self) -> None:
        self._switch.end()


def lose_all_to(space: Space, number: int) -> None:
    """What this machine sends to that one is lost from now on; what it gets is not."""
    entry = (address_of(number), "lladdr", _NOBODY, "nud", "permanent", "dev", _CARD)
    space.ip("neighbour", "replace", *entry)


def lose_nothing_to(space: Space, number: int) -> None:
    space.ip("neighbour", "delete", address_of(number), "dev", _CARD)


def address_of(number: int) -> str:
    return f"{_NET}.{number}"


def _card_of(number: int) -> str:
    return f"02:00:00:00:00:{number:02x}"


def _port(number: int) -> str:
    return f"port{number}"


def why_not() -> str:
    """Why there can be no such machines here; empty where there can."""
    missing = [name for name in ("unshare", "nsenter", "ip", "setpriv") if not shutil.which(name)]
    if missing:
        return f"{', '.join(missing)} not installed: apt-get install util-linux iproute2"
    if os.geteuid() != 0:
        return "namespaces of networks need root"
    probe = "ip link add name b0 type bridge && ip link add name v0 type veth peer name v1"
    words = ["unshare", "--net", "--pid", "--uts", "--fork", "--mount-proc", "sh", "-c", probe]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"no namespaces here: {done.stderr.strip()}"
