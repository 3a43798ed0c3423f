"""Databases that studies in chaos live on, and what is done to them."""

from __future__ import annotations

import random
import signal
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import psutil

from tests.chaos.faults import Blow
from tests.servers import Postgresql, run_postgresql, wait_for

_AWAY_S = (0.5, 6.0)
_GONE_S = 10.0

DatabaseFault = Callable[[random.Random], Blow | None]


class Database(Protocol):
    """One that studies live on."""

    url: str
    faults: Mapping[str, DatabaseFault]

    def check_up(self) -> None:
        """Waits until it answers."""


class OnPostgresql:
    """A server of its own, which may be killed.

    Args:
        server: The server.
    """

    def __init__(self, server: Postgresql) -> None:
        self._server = server
        self.url = server.new_database()
        self.faults: Mapping[str, DatabaseFault] = {
            "database: SIGKILL of a backend": self._kill_backend,
            "database: SIGKILL of the server": self._kill_server,
            "database: immediate shutdown": self._shut_down,
            "database: SIGSTOP of all of it": self._stop_all,
        }

    def check_up(self) -> None:
        wait_for(self._server)

    def _kill_backend(self, chance: random.Random) -> Blow | None:
        backends = [each for each in self._family() if _is_backend(each)]
        if not backends:
            return None
        chance.choice(backends).send_signal(signal.SIGKILL)
        return Blow(victim="a backend")

    def _kill_server(self, chance: random.Random) -> Blow | None:
        process, family = self._server.daemon.process, self._family()
        if process is None:
            return None
        process.kill()
        process.wait()
        # They see that it is gone, and end; a new one refuses to start beside them.
        _, left = psutil.wait_procs(family, _GONE_S)
        for each in left:
            each.kill()
        return self._away(chance)

    def _shut_down(self, chance: random.Random) -> Blow | None:
        self._server.daemon.stop()
        return self._away(chance)

    def _away(self, chance: random.Random) -> Blow:
        start = self._server.daemon.start
        return Blow(victim="server", lasts_s=chance.uniform(*_AWAY_S), undo=start)

    def _stop_all(self, chance: random.Random) -> Blow | None:
        process = self._server.daemon.process
        if process is None:
            return None
        stopped = [psutil.Process(process.pid), *self._family()]
        for each in stopped:
            with suppress(psutil.Error):
                each.suspend()

        def go_on() -> None:
            for each in stopped:
                with suppress(psutil.Error):
                    each.resume()

        return Blow(victim="server", lasts_s=chance.uniform(*_AWAY_S), undo=go_on)

    def _family(self) -> list[psutil.Process]:
        process = self._server.daemon.process
        if process is None:
            return []
        try:
            return psutil.Process(process.pid).children(recursive=True)
        except psutil.Error:
            return []


class OnSqlite:
    """A file, which another program may lock.

    Args:
        path: Of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.url = f"sqlite:///{path}"
        self.faults: Mapping[str, DatabaseFault] = {"database: locked by another": self._lock}

    def check_up(self) -> None:
        return None

    def _lock(self, chance: random.Random) -> Blow | None:
        if not self._path.exists():
            return None
        connection = sqlite3.connect(self._path, timeout=1.0)
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            connection.close()
            return None
        return Blow(victim="file", lasts_s=chance.uniform(*_AWAY_S), undo=connection.close)


@contextmanager
def database(kind: str, folder: Path) -> Iterator[Database]:
    """A new one: `postgresql` or `sqlite`."""
    if kind == "sqlite":
        yield OnSqlite(folder / "chaos.db")
        return
    with run_postgresql() as server:
        yield OnPostgresql(server)


def _is_backend(process: psutil.Process) -> bool:
    """Whether it serves a client: `postgres: user database host(port) state`."""
    try:
        return "127.0.0.1(" in " ".join(process.cmdline())
    except psutil.Error:
        return False
