"""A machine of its own for a dispatcher: what happens to all of it at once."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.chaos.checked import ENV_MACHINE
from tests.chaos.keeper import Keeper
from tests.chaos.nodes.clock import Clock, make_clock
from tests.chaos.nodes.network import Network, Space, lose_all_to, lose_nothing_to
from tests.chaos.nodes.server import SERVER, NodeServer

#: In the place of an exit code: somebody starts the command again.
_LEFT = -1
_KINDS = ("net", "pid", "uts")
#: Each time that a machine is switched on it has another address, from this one on.
_FIRST_ADDRESS = 11
_addresses = itertools.count(_FIRST_ADDRESS)


@dataclass(kw_only=True)
class Node:
    """One machine. It can be off, frozen, or cut off from the database.

    Args:
        number: From 0.
        host: Its host name, which another one may have too.
        network: To which it is plugged.
        server: Of the database.
        clock: Its wall clock.
    """

    number: int
    host: str
    network: Network
    server: NodeServer
    clock: Clock
    #: The last one is the present one.
    addresses: list[int] = field(default_factory=list)
    #: While nobody types the command there again.
    is_held: bool = False
    _space: Space | None = None

    @property
    def address(self) -> int:
        return self.addresses[-1]

    @property
    def name(self) -> str:
        """For people: host names are not unique."""
        return f"machine {self.number}"

    @property
    def space(self) -> Space:
        assert self._space is not None
        return self._space

    @property
    def is_on(self) -> bool:
        return self._space is not None and self._space.is_there()

    def switch_on(self) -> None:
        self._space = Space(_KINDS, self.host)
        self.addresses.append(next(_addresses))
        self.network.plug(self._space, self.address)

    def lose_power(self) -> None:
        """Every process in it is gone at once. Safe to call twice."""
        if self._space is not None:
            self._space.end()

    def leave_behind(self) -> Space:
        """What is on it goes on without it; it can be switched on as a new machine."""
        space, self._space = self.space, None
        return space

    def freeze(self) -> None:
        self.space.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.space.signal(signal.SIGCONT)

    def pull_cable(self) -> None:
        self.network.pull(self.address)

    def put_cable_back(self) -> None:
        self.network.put_back(self.address)

    def lose_requests(self) -> None:
        """What it sends to the database is lost."""
        lose_all_to(self.space, SERVER)

    def lose_answers(self) -> None:
        """What the database sends to it is lost."""
        lose_all_to(self.server.space, self.address)

    def lose_nothing(self) -> None:
        """Undoes both."""
        for space, number in ((self.space, SERVER), (self.server.space, self.address)):
            with suppress(subprocess.CalledProcessError):
                lose_nothing_to(space, number)


@dataclass(kw_only=True)
class NodeKeeper(Keeper):
    """Keeps a dispatcher running on a machine, which is switched on for it where it is off."""

    node: Node

    def start(self) -> None:
        if not self.node.is_on:
            self.node.switch_on()
        self.prefix = self.node.space.enter(self.folder)
        # A machine has its /tmp for itself, locks of devices included; the folder it shares.
        temporary = self.folder.with_name(f"tmp-{self.node.address}")
        temporary.mkdir(exist_ok=True)
        self.env = {
            **self.env,
            ENV_MACHINE: str(self.node.address),
            "TMPDIR": str(temporary),
        }
        super().start()

    def poll(self) -> int | None:
        return None if self.node.is_held else super().poll()

    @property
    def dispatcher(self) -> psutil.Process | None:
        if self.process is None:
            return None
        with suppress(psutil.Error):
            return next(iter(psutil.Process(self.process.pid).children()), None)
        return None

    def leave_behind(self) -> subprocess.Popen[bytes] | None:
        """The present dispatcher goes on, and is kept no more; its code counts for nothing."""
        process, self.process = self.process, None
        self.codes.append(_LEFT)
        return process

    def go_on(self) -> None:
        """After its machine has thawed: `nsenter` stops itself when its child is stopped."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGCONT)


def nodes_on(
    network: Network, server: NodeServer, hosts: Sequence[str], folder: Path
) -> list[Node]:
    """One for each host name, not yet switched on; its clock is in the folder."""
    return [
        Node(
            number=number,
            host=host,
            network=network,
            server=server,
            clock=make_clock(folder, str(number)),
        )
        for number, host in enumerate(hosts)
    ]
