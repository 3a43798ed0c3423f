"""Rendezvous of a trial's ranks: torch's key-value store, on a port that all ranks know.

The tuner and torchrun set the port in `MASTER_PORT`. Open MPI's mpirun sets none: rank 0 then
chooses a free port and writes it to mpirun's session folder, which mpirun removes when it ends.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Final

import torch.distributed as dist
from torch.distributed import HashStore, TCPStore  # type: ignore[attr-defined]
from torch.distributed.distributed_c10d import Store
from torch.distributed.rendezvous import rendezvous

_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_LOOPBACK_INTERFACE: Final = {"linux": "lo", "darwin": "lo0"}
_ENV_PORT: Final = "MASTER_PORT"
_ENV_MPI_FOLDER: Final = "PMIX_SERVER_TMPDIR"
_PORT_FILE: Final = "tuner-rendezvous-port"
_POLL_S: Final = 0.02


def is_on_this_host() -> bool:
    """Whether the ranks meet on this machine."""
    return os.environ.get("MASTER_ADDR", _LOOPBACK[0]) in _LOOPBACK


def use_loopback_interface() -> None:
    """Lets gloo listen on no other interface if all ranks are on this machine."""
    if is_on_this_host() and sys.platform in _LOOPBACK_INTERFACE:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", _LOOPBACK_INTERFACE[sys.platform])


def store_of_ranks(rank: int, world_size: int, timeout: timedelta) -> Store:
    """Connects a rank to the store of all ranks.

    Args:
        rank: Rank of this process.
        world_size: Number of ranks.
        timeout: Maximum wait for the other ranks.

    Raises:
        OSError: If the port of `MASTER_PORT` is in use.
        RuntimeError: If no port is set, or the other ranks are absent.
    """
    if world_size == 1:
        return HashStore()
    if dist.is_torchelastic_launched() or not is_on_this_host():
        store: Store
        store, _, _ = next(rendezvous("env://", timeout=timeout))
        return store
    if _ENV_PORT in os.environ:
        return _store_on_port(int(os.environ[_ENV_PORT]), rank, world_size, timeout)
    return _store_under_mpirun(rank, world_size, timeout)


def _store_on_port(port: int, rank: int, world_size: int, timeout: timedelta) -> Store:
    # torch's own server listens on every interface, without authentication.
    listener = _listen(port).detach() if rank == 0 else None
    return _connect(port, world_size, timeout, listener)


def _store_under_mpirun(rank: int, world_size: int, timeout: timedelta) -> Store:
    file = _port_file()
    listener = _listen(0) if rank == 0 else None
    if listener is not None:
        port: int = listener.getsockname()[1]
        _write_port(file, port)
    else:
        port = _wait_for_port(file, timeout)
    store = _connect(port, world_size, timeout, listener.detach() if listener else None)
    # A later group of the same program meets there as well, without the file.
    os.environ[_ENV_PORT] = str(port)
    return store


def _port_file() -> Path:
    if _ENV_MPI_FOLDER not in os.environ:
        raise RuntimeError(
            "The ranks of this trial have no port to meet: MASTER_PORT is not set. Set MASTER_ADDR "
            "and MASTER_PORT, the same for all ranks, or start the program with torchrun."
        )
    return Path(os.environ[_ENV_MPI_FOLDER], _PORT_FILE)


def _write_port(file: Path, port: int) -> None:
    new = file.with_suffix(".new")
    new.write_text(str(port))
    new.replace(file)


def _wait_for_port(file: Path, timeout: timedelta) -> int:
    give_up_at_s = time.monotonic() + timeout.total_seconds()
    while not file.exists():
        if time.monotonic() > give_up_at_s:
            raise RuntimeError(
                f"Rank 0 has not started to listen within {timeout.total_seconds():g} s. All ranks "
                "of mpirun must be on this host; on several hosts set MASTER_ADDR and MASTER_PORT."
            )
        time.sleep(_POLL_S)
    return int(file.read_text())


def _connect(port: int, world_size: int, timeout: timedelta, listener: int | None) -> Store:
    store: Store = TCPStore(
        _LOOPBACK[0],
        port,
        world_size,
        is_master=listener is not None,
        timeout=timeout,
        wait_for_workers=False,
        master_listen_fd=listener,
    )
    return store


def _listen(port: int) -> socket.socket:
    listener = socket.socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((_LOOPBACK[0], port))
        listener.listen()
    except OSError as error:
        listener.close()
        place = f"{_LOOPBACK[0]}:{port}, where the ranks of this trial meet"
        raise OSError(error.errno, f"{error.strerror}: {place}") from error
    return listener
