"""Object stores for tests: a real server of S3's protocol (moto), and Google's client on the same;
Microsoft's own emulator for Azure (azurite), where it is installed: npm install -g azurite.

Google's XML API is that of S3. Neither of the emulators of Google's store that PyPI has speaks it
(fake-gcs-server, gcp-storage-emulator), so that the client for `gs://` talks to moto, too, through
a proxy that puts a key of S3 in the place of its empty token.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.utils import formatdate
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
#: Of every emulator, as Microsoft documents it.
_ACCOUNT = "devstoreaccount1"
_ACCOUNT_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


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
    port = _free_port()
    process = start_moto(port, tmp_path_factory.mktemp("moto") / "log")
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


@pytest.fixture
def azure_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreAddress]:
    """An empty container of an emulator, and the variables that lead to it."""
    program = shutil.which("azurite-blob")
    if program is None:
        pytest.skip("Azure's emulator is needed: npm install -g azurite")
    port = _free_port()
    words = ["--silent", "--inMemoryPersistence", "--disableTelemetry", "--blobPort", str(port)]
    process = _start([program, *words], port, tmp_path / "azurite.log")
    monkeypatch.setenv("AZURE_STORAGE_USE_EMULATOR", "true")
    monkeypatch.setenv("AZURITE_BLOB_STORAGE_URL", f"http://127.0.0.1:{port}")
    try:
        _make_container(port, "container")
        yield StoreAddress(scheme="az", bucket="container", prefix="p")
    finally:
        process.kill()
        process.wait()


def _make_container(port: int, name: str) -> None:
    heads = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-12-02"}
    text = "PUT" + "\n" * 12 + "".join(f"{key}:{value}\n" for key, value in heads.items())
    text += f"/{_ACCOUNT}/{_ACCOUNT}/{name}\nrestype:container"
    digest = hmac.new(base64.b64decode(_ACCOUNT_KEY), text.encode(), hashlib.sha256).digest()
    heads["Authorization"] = f"SharedKey {_ACCOUNT}:{base64.b64encode(digest).decode()}"
    url = f"http://127.0.0.1:{port}/{_ACCOUNT}/{name}?restype=container"
    request = urllib.request.Request(url, method="PUT", headers={**heads, "Content-Length": "0"})
    urllib.request.urlopen(request, timeout=30).close()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def start_moto(port: int, log: Path) -> subprocess.Popen[bytes]:
    """A server of S3's protocol, on 127.0.0.1, that answers."""
    # As a program of its own: moto's warnings are no concern of ours.
    words = ["-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    return _start([sys.executable, *words], port, log)


def _start(words: list[str], port: int, log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as out:
        process = subprocess.Popen(words, stdout=out, stderr=out)
    give_up_at_s = time.monotonic() + _START_TIMEOUT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return process
        except OSError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < give_up_at_s, log.read_text()
            time.sleep(0.05)
