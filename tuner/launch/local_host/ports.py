"""TCP ports for the rendezvous of a DDP trial's ranks."""

from __future__ import annotations

import socket
from collections import deque

#: The kernel may offer a port again at once; by then the earlier group has long bound its own.
_N_REMEMBERED = 256
_MAX_TRIES = 1000


class Ports:
    """Finds free ports, none twice within a while.

    A port is not reserved until the program binds it. If another process takes it first, the
    program fails with "Address already in use", and its attempt is retried.
    """

    def __init__(self) -> None:
        self._lately: deque[int] = deque(maxlen=_N_REMEMBERED)

    def take(self) -> int:
        """Returns a free port.

        Raises:
            OSError: If this host has no free port.
        """
        for _ in range(_MAX_TRIES):
            port = _free_port()
            if port not in self._lately:
                self._lately.append(port)
                return port
        raise OSError("This host has no free TCP port.")


def _free_port() -> int:
    # On every address: torch's own store binds all of them.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
