"""An object store on a machine of its own, which refuses requests or loses them half-way.

`python -m tests.chaos.nodes.store PORT LOG` is the store: moto behind a proxy, which reads what to
do from its standard input, line by line.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.nodes.network import Network, Space, address_of
from tests.e2e.study_folder import REPOSITORY
from tests.object_stores import start_moto
from tests.proxy import Proxy

#: Number of its machine.
STORE = 4
_PORT = 5000
_BUCKET = "chaos"
ADDRESS = f"s3://{_BUCKET}/p"
ENV: Mapping[str, str] = {
    "AWS_ACCESS_KEY_ID": "a-key",
    "AWS_SECRET_ACCESS_KEY": "a-secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_ENDPOINT_URL": f"http://{address_of(STORE)}:{_PORT}",
}
_REFUSE, _SERVE, _CUT = "refuse", "serve", "cut"
_REFUSAL = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@dataclass(frozen=True, kw_only=True)
class Store:
    """What faults do to it."""

    process: subprocess.Popen[bytes]

    def refuse(self) -> None:
        """Answers 503 to everything, until `serve`."""
        self._tell(_REFUSE)

    def serve(self) -> None:
        self._tell(_SERVE)

    def cut_next(self, *, is_heard: bool) -> None:
        """Cuts the connection of the next upload.

        Args:
            is_heard: The store gets all of it, and its answer is lost; else the rest is lost.
        """
        self._tell(f"{_CUT} {int(is_heard)}")

    def _tell(self, line: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()
        assert self.process.stdout.readline(), "the object store has ended"


@contextmanager
def run_store(network: Network, folder: Path) -> Iterator[Store]:
    """Starts it with an empty bucket."""
    space = Space(["net", "pid"])
    network.plug(space, STORE)
    words = (sys.executable, "-m", __spec__.name, str(_PORT), str(folder / "store.log"))
    process = subprocess.Popen(
        [*space.enter(REPOSITORY), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline(), "the object store did not start"
        yield Store(process=process)
    finally:
        space.end()
        process.communicate()


def main() -> None:
    port, log = int(sys.argv[1]), Path(sys.argv[2])
    with socket.create_server(("127.0.0.1", 0)) as free:
        inner = free.getsockname()[1]
    moto = start_moto(inner, log)
    url = f"http://127.0.0.1:{inner}/{_BUCKET}"
    urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=30).close()
    with Proxy(inner, listen=("0.0.0.0", port)) as proxy:
        print("ready", flush=True)
        for line in sys.stdin:
            match line.split():
                case [word] if word == _REFUSE:
                    proxy.answer = _REFUSAL
                case [word] if word == _SERVE:
                    proxy.answer = None
                case [word, is_heard] if word == _CUT:
                    proxy.cut_at(b"PUT ", is_heard=is_heard == "1")
            print("done", flush=True)
    moto.kill()


if __name__ == "__main__":
    main()
