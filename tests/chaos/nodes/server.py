"""PostgreSQL on a machine of its own, with a replica that can take its place."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from tests.chaos.databases import DatabaseFault
from tests.chaos.nodes.network import Network, Space, address_of
from tests.servers import folder_of, make_cluster

#: Numbers of the machines; all clients connect to the first one.
SERVER, REPLICA = 1, 2
_PORT = 5432
_DATABASE = "chaos"
_START_S = 60.0
_POLL_S = 0.05
_AS_POSTGRES = ("setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups")
_ACCESS = """
local all all trust
host all all 10.77.0.0/24 trust
host replication all 10.77.0.0/24 trust
"""
_SETTINGS = {"listen_addresses": "*", "fsync": "off"}
_FOLLOWS = "SELECT 1 FROM pg_stat_replication WHERE replay_lsn = pg_current_wal_lsn()"


@dataclass(kw_only=True)
class NodeServer:
    """The database of a study whose dispatchers are on other machines.

    Args:
        network: To which it is plugged.
        folder: Of its files, and of the socket over which this process asks it.
        programs: Of PostgreSQL.
    """

    network: Network
    folder: Path
    programs: Path
    faults: Mapping[str, DatabaseFault] = field(default_factory=dict)
    space: Space = field(init=False)
    _replica: Space | None = None
    _n_replicas: int = 0

    def start(self) -> None:
        """A new database, empty, that answers."""
        self.space = Space(["net", "pid"])
        self.network.plug(self.space, SERVER)
        (self.folder / "data" / "pg_hba.conf").write_text(_ACCESS)
        self._run_in(self.space, "data")
        self._use("data")
        self.check_up()
        with self._connected("postgres") as connection:
            connection.execute(f"CREATE DATABASE {_DATABASE}".encode())

    @property
    def url(self) -> str:
        """For this process, which is on no network."""
        return f"postgresql+psycopg://postgres@/{_DATABASE}?host={self._sockets}&port={_PORT}"

    @property
    def url_on_network(self) -> str:
        """For the machines."""
        return f"postgresql+psycopg://postgres@{address_of(SERVER)}:{_PORT}/{_DATABASE}"

    def check_up(self) -> None:
        """Waits until it answers."""
        give_up_at_s = time.monotonic() + _START_S
        while True:
            try:
                self._connected("postgres").close()
            except psycopg.OperationalError:
                if time.monotonic() > give_up_at_s:
                    raise
                time.sleep(_POLL_S)
            else:
                return

    def execute(self, statement: str) -> Sequence[tuple[object, ...]]:
        """Carries out a statement; its rows, if it has any."""
        with self._connected(_DATABASE) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def end(self) -> None:
        for space in (self.space, self._replica):
            if space is not None:
                space.signal(signal.SIGQUIT)
                space.end()

    # -- a replica -----------------------------------------------------------------------------

    def add_replica(self) -> None:
        """A copy on another machine, which follows until its cable is pulled."""
        self._n_replicas += 1
        data = f"data-{self._n_replicas}"
        self._replica = Space(["net", "pid"])
        self.network.plug(self._replica, REPLICA)
        source = ("-h", address_of(SERVER), "-p", str(_PORT), "-U", "postgres")
        words = ("-D", f"{self.folder}/{data}", "-R", "-X", "stream", "-c", "fast")
        copy = (f"{self.programs}/pg_basebackup", *source, *words)
        subprocess.run([*self._replica.enter(self.folder), *_AS_POSTGRES, *copy], check=True)
        self._run_in(self._replica, data)
        give_up_at_s = time.monotonic() + _START_S
        while not self.execute(_FOLLOWS):
            assert time.monotonic() < give_up_at_s, "the replica does not follow"
            time.sleep(_POLL_S)

    def lose_replica(self) -> None:
        """What is committed from now on, the replica lacks."""
        self.network.pull(REPLICA)

    def fail_over(self) -> None:
        """The server is gone, and the replica has its address."""
        assert self._replica is not None
        self.space.end()
        self.space, self._replica = self._replica, None
        self._use(f"data-{self._n_replicas}")
        self.check_up()
        with self._connected("postgres") as connection:
            connection.execute("SELECT pg_promote()")
        self.network.move(self.space, REPLICA, SERVER)

    @property
    def _sockets(self) -> Path:
        return self.folder / "sockets"

    def _use(self, data: str) -> None:
        """This process asks the server that has its files there."""
        new = self.folder / "sockets-new"
        new.symlink_to(_socket_folder(self.folder, data))
        new.replace(self._sockets)

    def _connected(self, database: str) -> psycopg.Connection:
        return psycopg.connect(
            host=str(self._sockets), port=_PORT, user="postgres", dbname=database, autocommit=True
        )

    def _run_in(self, space: Space, data: str) -> None:
        sockets = _socket_folder(self.folder, data)
        sockets.mkdir()
        shutil.chown(sockets, "postgres")
        settings = {**_SETTINGS, "unix_socket_directories": str(sockets)}
        words = (f"-c{name}={value}" for name, value in settings.items())
        program = (f"{self.programs}/postgres", "-D", f"{self.folder}/{data}", f"-p{_PORT}")
        with (self.folder / f"{data}.log").open("ab") as log:
            subprocess.Popen(
                [*space.enter(self.folder), *_AS_POSTGRES, *program, *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


def _socket_folder(folder: Path, data: str) -> Path:
    return folder / f"{data}-sockets"


@contextmanager
def run_server(network: Network) -> Iterator[NodeServer]:
    """Starts it, and ends it with all its files."""
    with folder_of("postgres") as folder:
        server = NodeServer(network=network, folder=folder, programs=make_cluster(folder))
        server.start()
        try:
            yield server
        finally:
            server.end()
