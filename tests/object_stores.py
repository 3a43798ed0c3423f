"""Object stores for tests: a real server of S3's protocol (moto), and Google's client on the same.

Google's XML API is that of S3. Neither of the emulators of Google's store that PyPI has speaks it
(fake-gcs-server, gcp-storage-emulator), so that the client for `gs://` talks to moto, too, through
a proxy that puts a key of S3 in the place of its empty token.
"""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.proxy import Proxy
from tuner.checkpoints.object_store.address import StoreAddress
from tuner.checkpoints.object_store.bucket import Bucket

_START_TIMEOUT_S = 60.0
_LINE = b" HTTP/1.1\r\n"
_SWAPS = (
    (b"authorization: Bearer \r\n", b""),
    (_LINE, _LINE + b"authorization: AWS a-key:signature\r\n"),
)
_names = itertools.count()


@dataclass(kw_only=True)
class StoreServer:
    """A store with buckets that tests make."""

    port: int
    proxy: Proxy
    #: For Google's client.
    google: Proxy

    def new_bucket(self, scheme: str = "s3") -> NewBucket:
        """Makes an empty bucket."""
        name = f"bucket{os.getpid()}x{next(_names)}"
        url = f"http://127.0.0.1:{self.port}/{name}"
        urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=30).close()
        return NewBucket(server=self, address=StoreAddress(scheme=scheme, bucket=name, prefix="p"))


@dataclass(kw_only=True)
class NewBucket:
    """One bucket, and what a program needs to find it."""

    server: StoreServer
    address: StoreAddress
    proxy: Proxy = field(init=False)

    def __post_init__(self) -> None:
        self.proxy = self.server.proxy

    @property
    def environ(self) -> dict[str, str]:
        """Credentials, and the way through the proxy."""
        if self.address.scheme == "gs":
            return {"STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{self.server.google.port}"}
        return {
            "AWS_ACCESS_KEY_ID": "a-key",
            "AWS_SECRET_ACCESS_KEY": "a-secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.proxy.port}",
        }

    def open(self) -> Bucket:
        return Bucket(self.address, self.environ)

    def names(self) -> list[str]:
        """Names of all objects, without the prefix."""
        return sorted(key.removeprefix("p/") for key in self.open().keys("p"))


@pytest.fixture(scope="session")
def store_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    """One for all tests of this process; the network is whole at the begin of each."""
    if not os.environ.get("CI"):
        pytest.importorskip("moto")
        pytest.importorskip("obstore")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("moto") / "log"
    process = _start(port, log)
    try:
        with Proxy(port) as proxy, Proxy(port, swaps=_SWAPS) as google:
            yield StoreServer(port=port, proxy=proxy, google=google)
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def bucket(store_server: StoreServer) -> Iterator[NewBucket]:
    """An empty bucket of S3."""
    yield store_server.new_bucket()
    store_server.proxy.answer = None
    store_server.proxy.restore()
    store_server.proxy.thaw()


def _start(port: int, log: Path) -> subprocess.Popen[bytes]:
    # The port as an argument of a program of its own: moto's warnings are no concern of ours.
    words = ["-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with log.open("wb") as out:
        process = subprocess.Popen([sys.executable, *words], stdout=out, stderr=out)
    give_up_at_s = time.monotonic() + _START_TIMEOUT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return process
        except OSError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < give_up_at_s, log.read_text()
            time.sleep(0.05)
